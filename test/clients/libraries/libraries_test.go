// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/envtest"
)

//go:embed testdata/main.go
var consumer string

// TestClientLibraries checks that a program with another version of the client libraries than the
// server's compiles with the client module, and works.
func TestClientLibraries(t *testing.T) {
	const module = "platform.example.org/workshop-client"
	root := filepath.Join("..", "..", "..")
	clients := filepath.Join(t.TempDir(), "clients")
	scripttest.Shell(t, root, "scripts/client-module.sh "+clients+" "+module)
	e := envtest.New(t, envtest.Options{})
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	namespace := e.NewNamespace(t)
	for name, get := range map[string]string{
		"newest": "k8s.io/client-go@upgrade sigs.k8s.io/controller-runtime@upgrade",
		// A program may use older libraries: it compiles the module with older ones than the
		// module's go.mod requires.
		"1.36": "k8s.io/client-go@v0.36.3 sigs.k8s.io/controller-runtime@v0.24.1",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			scripttest.Write(t, filepath.Join(dir, "go.mod"), "module platform.example.org/consumer\n\ngo 1.26.0\n")
			scripttest.Write(t, filepath.Join(dir, "main.go"), consumer)
			commands := []string{"go mod edit -require=" + module + "@v0.0.0 -replace=" + module + "@v0.0.0=" + clients}
			for library := range strings.FieldsSeq(get) {
				path, version, _ := strings.Cut(library, "@")
				if name == "newest" {
					commands = append(commands, "go get "+library)
					continue
				}
				commands = append(commands, "go mod edit -replace="+path+"="+path+"@"+version)
				if path == "k8s.io/client-go" {
					for _, same := range []string{"api", "apimachinery", "apiextensions-apiserver"} {
						commands = append(commands, "go mod edit -replace=k8s.io/"+same+"=k8s.io/"+same+"@"+version)
					}
				}
			}
			commands = append(commands, "go mod tidy", "go build -o consumer .",
				"./consumer "+kubeconfig+" "+namespace+" "+strings.ReplaceAll(name, ".", "-"),
				"go list -m k8s.io/client-go sigs.k8s.io/controller-runtime")
			t.Log(scripttest.Shell(t, dir, strings.Join(commands, " && "), "GOFLAGS=-mod=mod "+os.Getenv("GOFLAGS")))
		})
	}
}
