// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestClientModule checks that the types and clients of the sample form a module without the
// server's dependencies, and that a program can use it together with the kit.
func TestClientModule(t *testing.T) {
	const module = "platform.example.org/workshop-client"
	clients := filepath.Join(t.TempDir(), "clients")
	scripttest.Shell(t, "..", "scripts/client-module.sh "+clients+" "+module)
	dir := t.TempDir()
	scripttest.Write(t, filepath.Join(dir, "go.mod"), "module platform.example.org/consumer\n\ngo 1.26.0\n")
	scripttest.Write(t, filepath.Join(dir, "main.go"), `package main

import (
	"fmt"

	"k8s.io/client-go/rest"

	v1 "`+module+`/workshop/v1"
	"`+module+`/client/clientset/versioned"
)

func main() {
	clients, err := versioned.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	fmt.Println(clients.WorkshopV1().RESTClient(), v1.SchemeGroupVersion, err)
}
`)
	scripttest.Shell(t, dir,
		"go mod edit -require="+module+"@v0.0.0 -replace="+module+"@v0.0.0="+clients+" && go mod tidy && go vet ./...",
		"GOFLAGS=-mod=mod "+os.Getenv("GOFLAGS"))
	for line := range strings.SplitSeq(scripttest.Shell(t, dir, "go list -m all", "GOFLAGS=-mod=mod"), "\n") {
		for _, server := range []string{"example.com/extension-apiserver ", "k8s.io/apiserver ",
			"k8s.io/code-generator ", "go.etcd.io/etcd", "google.golang.org/grpc "} {
			if strings.HasPrefix(line, server) {
				t.Errorf("a client inherits the module %s", line)
			}
		}
	}
}
