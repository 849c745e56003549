// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestBackupDoc runs the commands of "Embedded etcd under make run" in
// docs/operate/backup-and-restore.md: it backs up a running server, deletes an object, and restores
// it.
func TestBackupDoc(t *testing.T) {
	dir := scripttest.CopyTree(t, filepath.Join("..", ".."))
	blocks := scripttest.Blocks(scripttest.Section(t, filepath.Join(dir, "docs", "operate", "backup-and-restore.md"),
		"Embedded etcd under make run"))
	if len(blocks) != 3 {
		t.Fatalf("blocks of the section: got %q, want save, restore, defragment", blocks)
	}
	t.Setenv("DATA_DIR", filepath.Join(dir, ".run", "data-1"))
	t.Setenv("KUBECONFIG", filepath.Join(dir, ".run", "kubeconfig"))
	t.Setenv("PATH", strings.Join([]string{filepath.Join(dir, "bin"), filepath.Join(dir, "bin", envtest.DefaultMinor),
		os.Getenv("PATH")}, ":"))

	scripttest.Shell(t, dir, "make build")
	server := scripttest.MakeRun(t, dir, "make run")
	const gadgets = "sample/objects/gadget.yaml"
	scripttest.Shell(t, dir, "kubectl apply -f "+gadgets)
	saved := scripttest.Shell(t, dir, "kubectl get -o yaml -f "+gadgets)
	if out := scripttest.Shell(t, dir, blocks[0]); !regexp.MustCompile(
		`(?s)^Saved backup\.db\n.* 1 keys with the prefix .* leader .* healthy `).MatchString(out) {
		t.Errorf("save: got\n%swant one object saved, and a healthy leader", out)
	}
	scripttest.Shell(t, dir, "kubectl delete -f "+gadgets)
	server.Interrupt(t)
	if out := scripttest.Shell(t, dir, blocks[1]); !strings.Contains(out, "Restored backup.db\n") {
		t.Errorf("restore: got\n%s", out)
	}

	server = scripttest.MakeRun(t, dir, "make run")
	if got := scripttest.Shell(t, dir, "kubectl get -o yaml -f "+gadgets); got != saved {
		t.Errorf("object after the restore: got\n%swant\n%s", got, saved)
	}
	if out := scripttest.Shell(t, dir, blocks[2]); strings.Count(out, "\n") != 2 {
		t.Errorf("defragment: got\n%swant one member", out)
	}
	server.Interrupt(t)
}
