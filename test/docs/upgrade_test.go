// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

// originTest is a test that the project runs. It checks that pages of other origins cannot open a
// connection, and uses nothing of the project's own.
const originTest = `package backup

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

func TestForeignOriginUpgrade(t *testing.T) {
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
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/apis/backup.example.org/v1/backupplans", nil)
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

// TestUpgrade checks that make upgrade alone brings a fix in the server's filters, one in a
// manifest, and newer Kubernetes libraries to a project that the previous version generated. The
// upgrade keeps the team's changes.
func TestUpgrade(t *testing.T) {
	proxy := scripttest.NewModuleProxy(t)
	root := filepath.Join("..", "..")

	// The previous version lacks a filter and a setting.
	tree := scripttest.CopyTree(t, root)
	const hardened = "readOnlyRootFilesystem: true"
	scripttest.Shell(t, tree, `sed -i 's/req.Header.Values("Origin") {/req.Header.Values("Origin")[:0] {/' internal/filters/origin.go && grep -q 'Origin")\[:0\]' internal/filters/origin.go`)
	scripttest.Shell(t, tree, "sed -i 's/"+hardened+"/readOnlyRootFilesystem: false/' manifests/base/deployment.yaml")
	made := proxy.Publish(t, tree)

	parent := shortDir(t)
	dir := filepath.Join(parent, "backup")
	in := func(dir, command string) string {
		t.Helper()
		return scripttest.Shell(t, dir, command, proxy.Environment(t)...)
	}
	in(parent, "go run "+kit+"/cmd/scaffold@"+made+" new --dir=backup --module=git.example.org/platform/backup "+
		"--group=backup.example.org --kind=BackupPlan --subresources=status")
	scripttest.Write(t, filepath.Join(dir, "origin_test.go"), originTest)
	scripttest.Shell(t, dir, "echo '# ours' >>kit/scripts/kind.yaml")
	scripttest.Commit(t, dir)
	const check = "make controlplane >/dev/null && if go test -count=1 -run TestForeignOriginUpgrade . ; " +
		"then echo filtered; else echo open; fi"
	if out := in(dir, check); !strings.Contains(out, "\nopen\n") || !strings.Contains(out, "want 403") {
		t.Errorf("before the upgrade: got %q, want that the filter is missing", out)
	}

	// The project had older libraries, those of the first patch release of their minor version.
	// Nothing is built with them, because this would take minutes.
	scripttest.Shell(t, tree, "scripts/libraries.sh "+envtest.DefaultMinor+".0")
	old := proxy.Publish(t, tree)
	const list = "go list -m -f '{{.Version}}' k8s.io/apimachinery"
	kubernetes := strings.TrimSpace(scripttest.Shell(t, root, list))
	first := "v0." + strings.TrimPrefix(envtest.DefaultMinor, "1.") + ".0"
	in(dir, "sed -i 's/"+made+"/"+old+"/; s/ "+kubernetes+"/ "+first+"/' go.mod apis/go.mod && go mod tidy && cd "+
		"apis && go mod tidy")
	scripttest.Commit(t, dir)
	libraries := func() string {
		t.Helper()
		return in(dir, list+" && cd apis && "+list)
	}
	if got, want := libraries(), first+"\n"+first+"\n"; got != want {
		t.Errorf("libraries before the upgrade: got %q, want %q", got, want)
	}

	version := proxy.Publish(t, scripttest.CopyTree(t, root))
	contains(t, "make upgrade", in(dir, "make upgrade"), "kept kit/scripts/kind.yaml, which you edited",
		"Upgraded the kit from "+old+" to "+version,
		"changed go.mod", "changed kit/manifests/base/deployment.yaml")
	scripttest.Commit(t, dir)
	if out := in(dir, check); !strings.Contains(out, "\nfiltered\n") {
		t.Errorf("after the upgrade: got %q, want that the filter exists", out)
	}
	in(dir, "grep -q '"+hardened+"' kit/manifests/base/deployment.yaml && grep -q '# ours' kit/scripts/kind.yaml && "+
		"make test")
	if got, want := libraries(), kubernetes+"\n"+kubernetes+"\n"; got != want {
		t.Errorf("libraries after the upgrade: got %q, want those of the kit, %q", got, want)
	}
	in(dir, "make upgrade")
	if out := scripttest.Shell(t, dir, "git status --porcelain"); out != "" {
		t.Errorf("files that a second upgrade changes:\n%s", out)
	}
}
