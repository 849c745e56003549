// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/scripttest"
)

// TestUpstreamTypes: a kind whose spec has the types of Kubernetes in it is generated, served, and behaves as the
// built-in kinds do. v2 renames a field. Another hub does not change what is stored.
func TestUpstreamTypes(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "dbaas-") // the path of a socket in it is short enough
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir, stored := filepath.Join(parent, "dbaas"), filepath.Join(parent, "stored")
	shell := func(commands string) {
		t.Helper()
		scripttest.Shell(t, dir, commands)
	}
	scripttest.Shell(t, root, `go run ./cmd/scaffold new --dir=`+dir+` --module=git.example.org/platform/dbaas --group=dbaas.example.org \
		--kind=DatabaseInstance --subresources=status,scale`)
	types := filepath.Join("apis", "dbaas", "v1")
	rules := filepath.Join("registry", "dbaas", "databaseinstance")
	take := func(name, to string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		scripttest.Write(t, filepath.Join(dir, to), string(data))
	}
	take("databaseinstance.go", filepath.Join(types, "databaseinstance.go"))
	take("kind.go", filepath.Join(rules, "databaseinstance.go"))
	take("kind_test.go", filepath.Join(rules, "databaseinstance_test.go"))
	take("databaseinstance.yaml", filepath.Join("objects", "databaseinstance.yaml"))
	shell("make generate && go vet ./... && go test ./registry/...")
	take("instances_test.go", "instances_test.go")
	shell("go test -run='^Test(API|RoundTrip|Stored)$' . -stored=" + stored + " -create")

	shell("go tool scaffold version add v2 --hub")
	shell("go test -run=TestRules ./registry/... && go test -run='^Test(API|RoundTrip|Stored)$' . -stored=" + stored)

	// A field of v2 has another name. The old one is that of v1 alone.
	shell(`sed -i -E 's/\bvolume is\b/storage is/; s/\bVolume( +\*)/Storage\1/; s/"volume,/"storage,/; s/name=volume/name=storage/' apis/dbaas/v2/databaseinstance.go
		sed -i 's/Spec\.Volume/Spec.Storage/g; s/"volume"/"storage"/; s/"spec.volume"/"spec.storage"/' ` + rules + `/databaseinstance.go
		sed -i 's/Spec\.Volume/Spec.Storage/g; s/Volume:/Storage:/' ` + rules + `/databaseinstance_test.go
		sed -i 's|^\tValidate: validate,|\tPaths: map[string]map[string]string{"v1": {"spec.storage": "spec.volume"}},\n&|' ` + rules + `/databaseinstance.go`)
	take("conversion.go", filepath.Join(types, "conversion.go"))
	shell("make generate && go vet ./... && go test ./registry/...")
	shell("go test -run='^Test(API|RoundTrip|Stored)$' . -stored=" + stored)
	shell("go test -v -timeout=20m -run='^TestInstances$' . -full")
	if out := scripttest.Shell(t, dir, "go tool scaffold version delete v2 2>&1 || true"); !strings.Contains(out, "v2 is the hub") {
		t.Errorf("deleting the hub: got %q, want a refusal", out)
	}
}
