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

// project is a project that the scaffold created.
type project struct {
	t   *testing.T
	dir string
}

// newProject scaffolds the project dbaas with a kind.
func newProject(t *testing.T, kind string) project {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "dbaas-") // keeps the paths of sockets short enough
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := filepath.Join(parent, "dbaas")
	scripttest.Shell(t, root, `go run ./cmd/scaffold new --dir=`+dir+` --module=git.example.org/platform/dbaas --group=dbaas.example.org \
		--kind=`+kind)
	return project{t, dir}
}

// databases are the flags of the kind DatabaseInstance.
const databases = "DatabaseInstance --subresources=status,scale"

// shell runs commands in the project.
func (p project) shell(commands string) {
	p.t.Helper()
	scripttest.Shell(p.t, p.dir, commands)
}

// take copies a file of testdata into the project.
func (p project) take(name, to string) {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		p.t.Fatal(err)
	}
	scripttest.Write(p.t, filepath.Join(p.dir, to), string(data))
}

// TestUpstreamTypes checks that a kind whose spec uses Kubernetes types is generated and served,
// and behaves like built-in kinds. v2 renames a field. A change of the hub version does not change
// the stored bytes.
func TestUpstreamTypes(t *testing.T) {
	p := newProject(t, databases)
	shell, take, dir, stored := p.shell, p.take, p.dir, filepath.Join(p.dir, "..", "stored")
	types := filepath.Join("apis", "dbaas", "v1")
	rules := filepath.Join("registry", "dbaas", "databaseinstance")
	take("databaseinstance.go", filepath.Join(types, "databaseinstance.go"))
	take("kind.go", filepath.Join(rules, "databaseinstance.go"))
	take("kind_test.go", filepath.Join(rules, "databaseinstance_test.go"))
	take("databaseinstance.yaml", filepath.Join("objects", "databaseinstance.yaml"))
	shell("make generate && go vet ./... && go test ./registry/...")
	take("instances_test.go", "instances_test.go")
	shell("go test -run='^Test(API|RoundTrip|UpdateWithoutChange)$' . -stored=" + stored + " -create")

	shell("go tool scaffold version add v2 --hub")
	shell("go test -run=TestRules ./registry/... && go test -run='^Test(API|RoundTrip|UpdateWithoutChange)$' . " +
		"-stored=" + stored)

	// A field has another name in v2. Only v1 has the old name.
	shell(`sed -i -E 's/\bvolume is\b/storage is/; s/\bVolume( +\*)/Storage\1/; s/"volume,/"storage,/; s/name=volume/name=storage/' apis/dbaas/v2/databaseinstance.go
		sed -i 's/Spec\.Volume/Spec.Storage/g; s/"volume"/"storage"/; s/"spec.volume"/"spec.storage"/' ` + rules + `/databaseinstance.go
		sed -i 's/Spec\.Volume/Spec.Storage/g; s/Volume:/Storage:/' ` + rules + `/databaseinstance_test.go
		sed -i 's|^\tValidate: validate,|\tPaths: map[string]map[string]string{"v1": {"spec.storage": "spec.volume"}},\n&|' ` + rules + `/databaseinstance.go`)
	take("conversion.go", filepath.Join(types, "conversion.go"))
	shell("make generate && go vet ./... && go test ./registry/...")
	shell("go test -run='^Test(API|RoundTrip|UpdateWithoutChange)$' . -stored=" + stored)
	shell("go test -v -timeout=20m -run='^TestInstances$' . -full")
	if out := scripttest.Shell(t, dir, "go tool scaffold version delete v2 2>&1 || true"); !strings.Contains(out, "v2 is the hub") {
		t.Errorf("deleting the hub: got %q, want a refusal", out)
	}
}

// TestBackups checks that the library is sufficient for a kind with an action and a log, an
// admission plugin, and a field that needs its own verb.
func TestBackups(t *testing.T) {
	p := newProject(t, databases)
	registryDir := filepath.Join("registry", "dbaas")
	p.take("databaseinstance.go", filepath.Join("apis", "dbaas", "v1", "databaseinstance.go"))
	p.take("kind.go", filepath.Join(registryDir, "databaseinstance", "databaseinstance.go"))
	p.take("kind_test.go", filepath.Join(registryDir, "databaseinstance", "databaseinstance_test.go"))
	p.take("databaseinstance.yaml", filepath.Join("objects", "databaseinstance.yaml"))
	p.shell("go tool scaffold kind add BackupRun --subresources=status")
	p.take("backup/types.go", filepath.Join("apis", "dbaas", "v1", "backuprun.go"))
	p.take("backup/kind.go", filepath.Join(registryDir, "backuprun", "backuprun.go"))
	p.take("backup/backuprun.yaml", filepath.Join("objects", "backuprun.yaml"))
	p.take("backup/quota.go", filepath.Join("quota", "quota.go"))
	p.take("backup/promote.go", filepath.Join(registryDir, "databaseinstance", "promote.go"))
	p.shell(`sed -i 's|^\tValidate: validate,|\tAuthorize: authorize,\n&|' ` + filepath.Join(registryDir, "databaseinstance", "databaseinstance.go") + `
		sed -i 's|^\t\tOpenAPI: |\t\tAdmission: []apiserver.AdmissionPlugin{quota.Plugin},\n&|; s|^\t"git.example.org/platform/dbaas/openapi"|&\n\t"git.example.org/platform/dbaas/quota"|' api.go
		rm ` + filepath.Join(registryDir, "backuprun", "backuprun_test.go") + ` # its fields are others
		gofmt -l -w . && make generate && go vet ./...`)
	p.take("backup/backups_test.go", "backups_test.go")
	p.shell("go test -v -timeout=20m -run='^Test(API|RoundTrip|Backups)$' .")
}

// TestInventory checks that a kind whose objects another system has is served without etcd, and that
// informers follow it through failures of the system, restarts and changes of the replica.
func TestInventory(t *testing.T) {
	p := newProject(t, "InventoryItem --source=cached --columns=spec.count:integer")
	p.shell(`go test -run='^Test(API|List)$' ./...
		! grep -r 'embedded-storage\|external-etcd' manifests`)
	p.take("inventory/kind.go", filepath.Join("registry", "dbaas", "inventoryitem", "inventoryitem.go"))
	p.shell(`rm registry/dbaas/inventoryitem/inventoryitem_test.go # its list is another
		sed -i 's|inventoryitem.Kind.NewStorage|inventory.Kind().NewStorage|' api.go
		sed -i 's|^\treturn apiserver.API{|\tinventory := \&inventoryitem.Inventory{}\n&|' api.go
		sed -i 's|^\t\tOpenAPI: |\t\tFlags: []apiserver.Flags{inventory},\n&|' api.go
		gofmt -l -w . && go vet ./...`)
	p.take("inventory/inventory_test.go", "inventory_test.go")
	p.shell("go test -v -timeout=20m -run='^Test(API|RoundTrip|Inventory)$' .")
	p.shell(`go tool scaffold kind add Note
		grep embedded-storage manifests/kind/kustomization.yaml
		grep external-etcd manifests/production/kustomization.yaml`)
	p.shell("go tool scaffold kind add Ledger --source=live && go vet ./... && go test ./registry/...")
}

// TestReservations checks that a kind whose objects another system has, and which clients write,
// passes the conformance checks without etcd, such as those for server-side apply, quotas, policies,
// webhooks and garbage collection.
func TestReservations(t *testing.T) {
	p := newProject(t, "Reservation --source=cached")
	p.take("reservation/kind.go", filepath.Join("registry", "dbaas", "reservation", "reservation.go"))
	p.take("reservation/reservation_test.go", "reservation_test.go")
	p.shell(`rm registry/dbaas/reservation/reservation_test.go # its list is another
		gofmt -l -w . && go vet ./...
		go test -v -timeout=20m -run='^Test(API|RoundTrip|Reservations)$' .`)
}
