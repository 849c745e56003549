// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package quickstart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"example.com/extension-apiserver/internal/scripttest"
)

// guardTest is a test of the project: pages of other origins cannot open a connection. It needs nothing of the project's own.
const guardTest = `package backup

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

func TestGuard(t *testing.T) {
	e := envtest.New(t, envtest.Options{Server: "./cmd/backup-apiserver"})
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/apis/backup.example.org/v1/backupplans?watch=1&timeoutSeconds=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"https://evil.example.com"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("an upgrade from another origin: got %s, want 403", resp.Status)
	}
}
`

// TestUpgrade: a fix in the server's guards and one in a manifest arrive in a project that was made with the version before, by make
// upgrade and nothing else; so does another minor of Kubernetes. What the team edited is kept.
func TestUpgrade(t *testing.T) {
	proxy := scripttest.NewModuleProxy(t)
	root := filepath.Join("..", "..")

	// The version before lacks a guard and a setting.
	tree := scripttest.CopyTree(t, root)
	const hardened = "readOnlyRootFilesystem: true"
	scripttest.Shell(t, tree, "git apply test/mutations/foreign-origin-allowed.patch && sed -i 's/"+hardened+"/readOnlyRootFilesystem: false/' manifests/base/deployment.yaml")
	old := proxy.Publish(t, tree)

	parent := shortDir(t)
	dir := filepath.Join(parent, "backup")
	in := func(dir, command string) string {
		t.Helper()
		return scripttest.Shell(t, dir, command, append(proxy.Environment(t), "GOFLAGS=-trimpath")...)
	}
	// No status: validation-gen of Kubernetes 1.37.2 does not find the rules of conditions, kubernetes/kubernetes#141765.
	in(parent, "go run "+kit+"/cmd/scaffold@"+old+" new --dir=backup --module=git.example.org/platform/backup --group=backup.example.org --kind=BackupPlan")
	scripttest.Write(t, filepath.Join(dir, "guard_test.go"), guardTest)
	scripttest.Shell(t, dir, "echo '# ours' >>kit/scripts/kind.yaml")
	scripttest.Commit(t, dir)
	const guarded = "make controlplane >/dev/null && if go test -count=1 -run TestGuard . ; then echo guarded; else echo open; fi"
	if out := in(dir, guarded); !strings.Contains(out, "\nopen\n") || !strings.Contains(out, "want 403") {
		t.Errorf("before the upgrade: got %q, want that the guard is missing", out)
	}

	upgrade := func(tree string) {
		t.Helper()
		version := proxy.Publish(t, tree)
		out := in(dir, "make upgrade")
		contains(t, "make upgrade", out, "kept kit/scripts/kind.yaml, which you edited", "is "+version, "changed go.mod")
		scripttest.Commit(t, dir)
	}
	upgrade(scripttest.CopyTree(t, root))
	if out := in(dir, guarded); !strings.Contains(out, "\nguarded\n") {
		t.Errorf("after the upgrade: got %q, want that the guard is there", out)
	}
	in(dir, "grep -q '"+hardened+"' kit/manifests/base/deployment.yaml && grep -q '# ours' kit/scripts/kind.yaml && go test -count=1 ./...")

	tree = scripttest.CopyTree(t, root)
	kubernetes := nextMinor(t, tree)
	upgrade(tree)
	in(dir, "go vet ./... && go test -count=1 ./... && go list -m k8s.io/apiserver | grep -qx 'k8s.io/apiserver "+kubernetes+"'")
}

// nextMinor brings a tree of the kit to the libraries of the next minor of Kubernetes that there is, but for the sample, whose code is not
// generated anew. It returns their version.
func nextMinor(t *testing.T, tree string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	get := "go get"
	for _, r := range mod.Require {
		if strings.HasPrefix(r.Mod.Path, "k8s.io/") && strings.HasPrefix(r.Mod.Version, "v0.36.") && !r.Indirect {
			get += " " + r.Mod.Path + "@v0.37"
		}
	}
	out := scripttest.Shell(t, tree, get+" 2>&1 && go mod tidy 2>&1 && go list -m -f '{{.Version}}' k8s.io/apiserver")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
