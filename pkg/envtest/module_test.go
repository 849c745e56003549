// SPDX-License-Identifier: Apache-2.0

package envtest_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

const (
	kit = "example.com/extension-apiserver"
	// embeddedEtcd is a package of the server of etcd.
	embeddedEtcd = "go.etcd.io/etcd/server/v3/embed"
)

// TestSeparateModule: a separate project gets the kit from a module proxy without a checkout, and
// its server serves its own kind.
func TestSeparateModule(t *testing.T) {
	proxy := scripttest.NewModuleProxy(t)
	version := proxy.Publish(t, scripttest.CopyTree(t, filepath.Join("..", "..")))
	dir := project(t, "notes.txtar")
	in := func(t *testing.T, command string) string {
		t.Helper()
		return scripttest.Shell(t, dir, command, append(proxy.Environment(t),
			"GOFLAGS=-mod=mod "+os.Getenv("GOFLAGS"))...)
	}
	run := func(command string) string { t.Helper(); return in(t, command) }
	run("go get " + kit + "@" + version + " && go mod tidy && go vet ./... && go build -o server .")

	if out := run("go list -deps ."); strings.Contains(out, embeddedEtcd) {
		t.Errorf("the server links %s, which it did not import", embeddedEtcd)
	}
	if out := run("go list -deps -test ."); strings.Contains(out, embeddedEtcd) {
		t.Errorf("the tests link %s", embeddedEtcd)
	}
	if out := run("./server version"); !strings.HasPrefix(out, "notes-apiserver ") {
		t.Errorf("version: got %q, want the name of the server", out)
	}
	ca, err := certs.NewCA(certs.CAOptions{Name: "serving-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	scripttest.Write(t, filepath.Join(dir, "ca.crt"), string(certs.Bundle{ca.Certificate}.PEM()))
	if out := run("./server apiservices --service=notes --namespace=notes --ca-file=ca.crt"); !strings.Contains(out,
		"name: v1alpha1.notes.example.org") {
		t.Errorf("apiservices: got %q, want one for the project's own version", out)
	}
	if out := run("./server serve 2>&1 || echo exit code $?"); !strings.Contains(out,
		"--etcd-servers must be specified") || !strings.Contains(out, "exit code 2") {
		t.Errorf("serve without flags: got %q, want exit code 2 and an error about --etcd-servers", out)
	}
	controlPlane, err := filepath.EvalSymlinks(filepath.Join("..", "..", "bin", envtest.DefaultMinor))
	if err != nil {
		t.Fatalf("find the control plane: %v; build it with: make controlplane", err)
	}
	if controlPlane, err = filepath.Abs(controlPlane); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]string{
		"with the cache of this machine": "unset KUBEBUILDER_ASSETS; go test -count=1 -v -run TestNotes .",
		"with binaries that somebody installed": "export KUBEBUILDER_ASSETS=" + controlPlane +
			" EXTENSION_APISERVER_CACHE=/nowhere; go test -count=1 -v .",
	} {
		t.Run(what, func(t *testing.T) {
			if out := in(t, test); !strings.Contains(out, "--- PASS: TestNotes") {
				t.Errorf("go test: got %q, want that TestNotes passes", out)
			}
		})
	}
	// A test that starts the server without importing it runs again after the server has changed.
	// go test does not cache results of tests whose files were modified recently.
	const test = `find . -exec touch -d "$1" {} + && GOFLAGS=${GOFLAGS/-count=1/} go test ./built`
	for _, tc := range []struct {
		command string
		cached  bool
	}{
		{"set -- 2020-01-01; " + test, false},
		{"set -- 2020-01-01; " + test, true},
		{"set -- 2020-01-02; echo >>main.go; " + test, false},
	} {
		if out := run(tc.command); strings.Contains(out, "(cached)") != tc.cached {
			t.Errorf("%s: got %q, want from the cache %v", tc.command, out, tc.cached)
		}
	}
}

// project writes the files of an archive in testdata to a new directory.
func project(t *testing.T, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range archive.Files {
		scripttest.Write(t, filepath.Join(dir, file.Name), string(file.Data))
	}
	return dir
}
