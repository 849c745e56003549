// SPDX-License-Identifier: Apache-2.0

package library

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
	"golang.org/x/tools/txtar"

	"example.com/extension-apiserver/internal/certs"
)

const (
	kit = "example.com/extension-apiserver"
	// embeddedEtcd is a package of the server of etcd.
	embeddedEtcd = "go.etcd.io/etcd/server/v3/embed"
)

// TestForeignModule: a project of its own gets the kit from a module proxy, with no checkout in reach, and its server knows its own kind.
func TestForeignModule(t *testing.T) {
	version := fmt.Sprintf("v0.0.%d", time.Now().UnixNano())
	proxy := publish(t, version)
	dir := project(t, "notes.txtar")
	run := func(command string) string {
		t.Helper()
		return shell(t, dir, command, "GOPROXY=file://"+proxy+","+goenv(t, "GOPROXY"), "GONOSUMDB="+kit, "GOFLAGS=-mod=mod -trimpath")
	}
	t.Cleanup(func() { removeFromCache(t, version) })
	run("go get " + kit + "@" + version + " && go mod tidy && go vet ./... && go build -o server .")

	if out := run("go list -deps ."); strings.Contains(out, embeddedEtcd) {
		t.Errorf("the server links %s, which it did not ask for", embeddedEtcd)
	}
	if out := run("./server version"); !strings.HasPrefix(out, "notes-apiserver ") {
		t.Errorf("version: got %q, want the name of the server", out)
	}
	ca, err := certs.NewCA(certs.CAOptions{Name: "serving-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), string(certs.Bundle{ca.Certificate}.PEM()))
	if out := run("./server apiservices --service=notes --namespace=notes --ca-file=ca.crt"); !strings.Contains(out, "name: v1alpha1.notes.example.org") {
		t.Errorf("apiservices: got %q, want one for the project's own version", out)
	}
	if out := run("./server serve 2>&1 || echo exit code $?"); !strings.Contains(out, "--etcd-servers must be specified") || !strings.Contains(out, "exit code 2") {
		t.Errorf("serve without flags: got %q, want exit code 2 and --etcd-servers asked for", out)
	}
}

// TestClientModule: the types and clients of the sample make a module that inherits nothing of a server, and that can be used
// beside the kit.
func TestClientModule(t *testing.T) {
	const module = "platform.example.org/workshop-client"
	clients := filepath.Join(t.TempDir(), "clients")
	shell(t, filepath.Join("..", ".."), "scripts/client-module.sh "+clients+" "+module)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module platform.example.org/consumer\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "main.go"), `package main

import (
	"fmt"

	"k8s.io/client-go/rest"

	v1 "`+module+`/apis/workshop/v1"
	"`+module+`/client/clientset/versioned"
)

func main() {
	clients, err := versioned.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	fmt.Println(clients.WorkshopV1().Widgets("default"), &v1.Widget{}, err)
}
`)
	shell(t, dir, "go mod edit -require="+module+"@v0.0.0 -replace="+module+"@v0.0.0="+clients+" && go mod tidy && go vet ./...", "GOFLAGS=-mod=mod -trimpath")
	for line := range strings.SplitSeq(shell(t, dir, "go list -m all", "GOFLAGS=-mod=mod"), "\n") {
		for _, server := range []string{kit, "k8s.io/apiserver ", "k8s.io/code-generator ", "go.etcd.io/etcd", "google.golang.org/grpc "} {
			if strings.HasPrefix(line, server) {
				t.Errorf("a client inherits the module %s", line)
			}
		}
	}
}

// publish makes a module proxy in a directory with the tree as it is on disk.
func publish(t *testing.T, version string) string {
	t.Helper()
	tree, proxy := t.TempDir(), t.TempDir()
	shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+tree+" && rm -r "+tree+"/bin")
	at := filepath.Join(proxy, filepath.FromSlash(kit), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(at, "list"), version+"\n")
	write(t, filepath.Join(at, version+".info"), fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version))
	write(t, filepath.Join(at, version+".mod"), string(mod))
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := zip.CreateFromDir(file, module.Version{Path: kit, Version: version}, tree); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// removeFromCache takes a version of the kit out of the cache of modules, where nobody needs it again.
func removeFromCache(t *testing.T, version string) {
	t.Helper()
	cache := goenv(t, "GOMODCACHE")
	shell(t, ".", "chmod -R u+w "+filepath.Join(cache, filepath.FromSlash(kit)+"@"+version)+" || true; rm -rf "+
		filepath.Join(cache, filepath.FromSlash(kit)+"@"+version)+" "+filepath.Join(cache, "cache", "download", filepath.FromSlash(kit), "@v", version+".*"))
}

// project writes the files of an archive in testdata.
func project(t *testing.T, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range archive.Files {
		write(t, filepath.Join(dir, file.Name), string(file.Data))
	}
	return dir
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goenv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(shell(t, ".", "go env "+name))
}

// shell runs commands and stops at the first that fails.
func shell(t *testing.T, dir, commands string, environment ...string) string {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: %.0fs", commands, took.Seconds())
	}
	return string(out)
}
