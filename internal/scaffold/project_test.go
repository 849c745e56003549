// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plan is a kind with everything.
var plan = Kind{
	Kind: "BackupPlan", Plural: "backupplans", Namespaced: true, Status: true, Scale: true, Controller: true,
	ShortNames: []string{"bp", "bpl"},
	Selectable: []Field{{Path: "spec.suspended", Type: "boolean"}},
	Columns:    []Field{{Path: "spec.schedule", Type: "string"}},
}

// newProject writes the files of a project, without generated code.
func newProject(t *testing.T) *project {
	t.Helper()
	o := newOptions{
		module: "git.example.org/team/backup", group: "backup.example.org", version: "v1",
		name: "backup-apiserver", kind: plan,
		kit: filepath.Join("..", ".."),
	}
	var err error
	if o.kit, err = filepath.Abs(o.kit); err != nil {
		t.Fatal(err)
	}
	p := &project{dir: t.TempDir(), module: o.module}
	w := work{context.Background(), os.Stderr}
	d, err := o.data(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.writeProject(p, o, d); err != nil {
		t.Fatal(err)
	}
	return p
}

// only is the only group of a project.
func only(t *testing.T, p *project) served {
	t.Helper()
	g, err := p.group("")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// kinds are those that api.go lists, by name.
func kinds(t *testing.T, p *project, g served) []string {
	t.Helper()
	var out []string
	for _, pkg := range g.kinds {
		k, err := p.kind(pkg)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k.Kind)
	}
	return out
}

// parses fails for each Go file that is none.
func parses(t *testing.T, p *project) {
	t.Helper()
	names, err := walk(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.dir, name), nil,
			parser.SkipObjectResolution); err != nil {
			t.Error(err)
		}
	}
}

// TestRead: what a kind was made with is what its files say, and so is what the sample has.
func TestRead(t *testing.T) {
	p := newProject(t)
	opened, err := openProject(p.path("registry", "backup"))
	if err != nil || opened.module != p.module {
		t.Fatalf("open the project from a folder in it: %+v, %v, want the module %s", opened, err, p.module)
	}
	g := only(t, opened)
	if g.Name != "backup.example.org" || g.Package != "backup" || len(g.kinds) != 1 {
		t.Fatalf("got %+v, want the group backup.example.org with one kind", g)
	}
	got, err := p.kind(g.kinds[0])
	if err != nil {
		t.Fatal(err)
	}
	if problems := got.differences(plan); len(problems) > 0 {
		t.Errorf("read after it was written: %v", problems)
	}
	extras := Kind{Kind: "BackupPlan", Plural: "backupplans", Namespaced: true, Roles: true}
	if plan.onlyExtras() || !extras.onlyExtras() {
		t.Error("onlyExtras: want false for a kind with other flags, and true for roles alone")
	}
	if !p.lacks(extras) || p.lacks(plan) {
		t.Error("lacks: want true for roles, and false for the kind as it is")
	}
	other := plan
	other.Namespaced, other.Scale, other.ShortNames, other.Columns = false, false, nil, nil
	if problems := got.differences(other); len(problems) != 4 {
		t.Errorf("got %v, want that scope, subresources, short names and columns differ", problems)
	}

	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := openProject(root)
	if err != nil || checkout.base != "sample" {
		t.Fatalf("open the kit: %+v, %v, want its sample", checkout, err)
	}
	widget, err := checkout.kind(only(t, checkout).kinds[0])
	if err != nil {
		t.Fatal(err)
	}
	want := Kind{Kind: "Widget", Plural: "widgets", Namespaced: true, Status: true, Scale: true,
		ShortNames: []string{"wg"}, Others: []Subresource{{"calibrate", "action"}, {"log", "log"}, {"console", "stream"}}, hub: "v1"}
	if diff := cmp.Diff(want, widget, cmp.AllowUnexported(Kind{}),
		cmpopts.IgnoreFields(Kind{}, "Columns", "Selectable")); diff != "" {
		t.Errorf("the sample's widget (-want +got):\n%s", diff)
	}
}

// TestKinds: a kind is added with one line in api.go, and deleted with all its files.
func TestKinds(t *testing.T) {
	p := newProject(t)
	before, err := walk(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile(p.path("api.go"))
	if err != nil {
		t.Fatal(err)
	}
	test, err := os.ReadFile(p.path("api_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	person := Kind{Kind: "Person", Plural: "people", Status: true,
		Others: []Subresource{{"call", "action"}, {"log", "log"}, {"talk", "stream"}}}
	if err := p.addKind(only(t, p).Group, "v1", person); err != nil {
		t.Fatal(err)
	}
	parses(t, p)
	if text, err := os.ReadFile(p.path("api_test.go")); err != nil ||
		!strings.Contains(string(text), `"Person": {"call": {"reason": "conformance"}}`) {
		t.Errorf("api_test.go has no body for the action: %v", err)
	}
	if got := kinds(t, p, only(t, p)); !slices.Equal(got, []string{"BackupPlan", "Person"}) {
		t.Errorf("kinds after one was added: %v", got)
	}
	if text, err := os.ReadFile(p.path("apis", "backup", "v1", "person.go")); err != nil ||
		!strings.Contains(string(text), "// +resourceName=people\n") {
		t.Errorf("person.go has no tag for an irregular plural: %v", err)
	}
	there, problems := p.collisions(only(t, p), Kind{Kind: "Persona", Plural: "people", ShortNames: []string{"bp"}})
	if there || len(problems) != 2 {
		t.Errorf("a kind with two taken names: got %v, want both", problems)
	}
	if there, problems := p.collisions(only(t, p), person); !there || len(problems) > 0 {
		t.Errorf("the same kind: got %t, %v, want that it is there", there, problems)
	}
	// A file that is there already is another's.
	if err := os.WriteFile(p.path("objects", "vault.yaml"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.addKind(only(t, p).Group, "v1", Kind{Kind: "Vault", Plural: "vaults"}); err == nil ||
		!strings.Contains(err.Error(), "already exists with other content") {
		t.Errorf("a file is there: got %v, want it refused", err)
	}
	g := only(t, p)
	if err := p.deleteKind(g.Group, g.kinds[1], person, []string{"v1"}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(p.path("api.go")); err != nil || string(after) != string(api) {
		t.Errorf("api.go after the kind was deleted: %v\n%s", err, cmp.Diff(string(api), string(after)))
	}
	if after, err := os.ReadFile(p.path("api_test.go")); err != nil || string(after) != string(test) {
		t.Errorf("api_test.go after the kind was deleted: %v\n%s", err, cmp.Diff(string(test), string(after)))
	}
	after, err := walk(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	after = slices.DeleteFunc(after, func(name string) bool { return strings.Contains(name, "vault") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("files after the kind was deleted (-want +got):\n%s", diff)
	}
}

// TestKeepGoName: the clients of a renamed group keep its Go name, which code that uses them has.
func TestKeepGoName(t *testing.T) {
	const doc = "// +k8s:openapi-gen=true\n// +groupName=data.example.org\npackage v1\n"
	const tagged = "// +k8s:openapi-gen=true\n// +groupName=data.example.org\n// +groupGoName=Backup\npackage v1\n"
	for name, tc := range map[string]struct{ pkg, text, want string }{
		"renamed":       {"backup", doc, tagged},
		"again":         {"backup", tagged, tagged},
		"its own name":  {"data", doc, doc},
		"another group": {"backup", "// +groupName=other.example.org\n", "// +groupName=other.example.org\n"},
	} {
		if got := string(Group{Name: "data.example.org", Package: tc.pkg}.keepGoName([]byte(tc.text))); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestReplaceGroup checks that a controller keeps its client and has permissions and a Lease of the
// renamed group.
func TestReplaceGroup(t *testing.T) {
	p := newProject(t)
	renamed := Group{Name: "archive.example.org", Package: "backup"}
	if err := p.replaceGroup("backup.example.org", renamed); err != nil {
		t.Fatal(err)
	}
	parses(t, p)
	if g := only(t, p); g.Group != renamed {
		t.Errorf("got the group %+v, want %+v", g.Group, renamed)
	}
	for file, want := range map[string][]string{
		"apis/backup/v1/doc.go": {"+groupName=archive.example.org\n", "+groupGoName=Backup\n"},
		"cmd/backupplan-controller/controller.go": {"git.example.org/team/backup/apis/backup/v1", "c.factory.Backup().V1()",
			"c.clients.BackupV1()"},
		"cmd/backupplan-controller/main.go": {`"backupplan-controller.archive.example.org"`},
		"manifests/backupplan-controller/rbac.yaml": {`apiGroups: ["archive.example.org"]`,
			`resourceNames: ["backupplan-controller.archive.example.org"]`},
		"objects/backupplan.yaml": {"apiVersion: archive.example.org/v1\n"},
	} {
		text, err := os.ReadFile(p.path(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s has no %q:\n%s", file, w, text)
			}
		}
		if strings.Contains(string(text), "backup.example.org") {
			t.Errorf("%s has the old name:\n%s", file, text)
		}
	}
}

// TestRoles: the overlays have the roles once, before the names. A component of roles that the team has
// edited stays as it is.
func TestRoles(t *testing.T) {
	p := newProject(t)
	if err := p.addRoles(); err != nil {
		t.Fatal(err)
	}
	component, own := p.path("manifests", "roles", "kustomization.yaml"), []byte("# of the team\n")
	if err := os.WriteFile(component, own, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.addRoles(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(component); err != nil || !bytes.Equal(text, own) {
		t.Errorf("got %q, %v, want the team's component unchanged", text, err)
	}
	for _, overlay := range []string{"kind", "production"} {
		text, err := os.ReadFile(p.path("manifests", overlay, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), "../roles\n") != 1 ||
			!strings.Contains(string(text), "\n- ../roles\n# Names come last, so that they apply to everything above.\n- ../names\n") {
			t.Errorf("%s: want the component once, before the names:\n%s", overlay, text)
		}
	}
}

// TestNamesake: a kind can have the name of its group, and that of another group's kind.
func TestNamesake(t *testing.T) {
	p := newProject(t)
	if err := p.addKind(only(t, p).Group, "v1", Kind{Kind: "Backup", Plural: "backups", Status: true}); err != nil {
		t.Fatal(err)
	}
	parses(t, p)
	g := only(t, p)
	if got := kinds(t, p, g); !slices.Equal(got, []string{"BackupPlan", "Backup"}) {
		t.Errorf("kinds: %v", got)
	}
	api, err := readSource(p.path("api.go"))
	if err != nil {
		t.Fatal(err)
	}
	if got := api.imports()["backupstorage"]; got != p.pkg("registry", "backup", "backup") {
		t.Errorf("the storage is imported as %v", api.imports())
	}
}

// TestVersions: a version is a copy under another name, at the end of the list.
func TestVersions(t *testing.T) {
	p := newProject(t)
	g := only(t, p).Group
	if err := p.addVersion(g, "v1", "v2beta1", []string{"v1"}); err != nil {
		t.Fatal(err)
	}
	parses(t, p)
	if got, err := p.versions(g); err != nil || !slices.Equal(got, []string{"v1", "v2beta1"}) {
		t.Errorf("versions: %v, %v, want the new one last", got, err)
	}
	for file, want := range map[string][]string{
		"doc.go": {"package v2beta1\n", "+k8s:conversion-gen=git.example.org/team/backup/apis/backup/v1\n",
			"+k8s:openapi-model-package=org.example.backup.v2beta1\n",
			"+groupName=backup.example.org\n"},
		"register.go":   {`Version: "v2beta1"}`, "var localSchemeBuilder = &SchemeBuilder\n", `metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"`},
		"backupplan.go": {"package v2beta1\n", "type BackupPlan struct {"},
	} {
		text, err := os.ReadFile(p.path("apis", "backup", "v2beta1", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s has no %q:\n%s", file, w, text)
			}
		}
	}
}

// TestMoveHub: rules and hooks get the types of the new version, and conversions to the old hub
// convert to it.
func TestMoveHub(t *testing.T) {
	p := newProject(t)
	g := only(t, p).Group
	if err := p.addVersion(g, "v1", "v1beta1", []string{"v1"}); err != nil {
		t.Fatal(err)
	}
	const conversions = `// Package v1beta1 has conversions.
package v1beta1

import (
	"k8s.io/apimachinery/pkg/conversion"

	v1 "git.example.org/team/backup/apis/backup/v1"
)

// Convert_v1_BackupPlan_To_v1beta1_BackupPlan is not generated.
func Convert_v1_BackupPlan_To_v1beta1_BackupPlan(in *v1.BackupPlan, out *BackupPlan, s conversion.Scope) error {
	return autoConvert_v1_BackupPlan_To_v1beta1_BackupPlan(in, out, s)
}

func Convert_v1beta1_BackupPlan_To_v1_BackupPlan(in *BackupPlan, out *v1.BackupPlan, s conversion.Scope) error {
	return autoConvert_v1beta1_BackupPlan_To_v1_BackupPlan(in, out, s)
}
`
	path := p.path("apis", "backup", "v1beta1", "conversion.go")
	if err := os.WriteFile(path, []byte(conversions), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.addVersion(g, "v1", "v2", nil), p.moveHub(g, "v1", "v2")); err != nil {
		t.Fatal(err)
	}
	parses(t, p)
	if hubs, err := p.hubs(g); err != nil || !slices.Equal(hubs, []string{"v2"}) {
		t.Errorf("hubs: got %q, %v, want v2 alone", hubs, err)
	}
	text, err := os.ReadFile(path)
	want := strings.NewReplacer("_v1_", "_v2_", "v1.", "v2.", `v1 "`, `v2 "`, `backup/v1"`, `backup/v2"`).Replace(conversions)
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("conversions (-want +got, %v):\n%s", err, diff)
	}
	for version, hubs := range map[string][]string{"v1beta1": {"v2"}, "v1": {"v2"}, "v2": nil} {
		text, err := os.ReadFile(p.path("apis", "backup", version, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tag := range regexp.MustCompile(`conversion-gen=.*/(v\w+)`).FindAllSubmatch(text, -1) {
			got = append(got, string(tag[1]))
		}
		if !slices.Equal(got, hubs) {
			t.Errorf("%s is converted to %q, want %q", version, got, hubs)
		}
	}
	rules, err := filepath.Glob(p.path("registry", "backup", "*", "*.go"))
	if err != nil || len(rules) != 2 {
		t.Fatalf("got the files of rules %q, %v, want two", rules, err)
	}
	for _, file := range rules {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "v1.BackupPlan") || !strings.Contains(string(text), "*v2.BackupPlan") {
			t.Errorf("%s is not about v2 alone (%v):\n%s", file, err, text)
		}
	}
}

// TestReadme: the table of kinds follows them, until the team writes another.
func TestReadme(t *testing.T) {
	p := newProject(t)
	g := only(t, p).Group
	readme := func() string {
		t.Helper()
		text, err := os.ReadFile(p.path("README.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const first = "| BackupPlan | backupplans, bp, bpl | backup.example.org | " +
		"[registry/backup/backupplan](registry/backup/backupplan) |\n"
	const second = "| Person | people | backup.example.org | [registry/backup/person](registry/backup/person) |\n"
	if err := p.listKind(g, Kind{Kind: "Person", Plural: "people"}); err != nil {
		t.Fatal(err)
	}
	if text := readme(); !strings.Contains(text, kindsTable+first+second+"\n") {
		t.Errorf("got no table with both kinds in\n%s", text)
	}
	if err := p.unlistKind(g, plan); err != nil {
		t.Fatal(err)
	}
	if text := readme(); !strings.Contains(text, kindsTable+second+"\n") {
		t.Errorf("got no table with the second kind alone in\n%s", text)
	}
	const own = "# Ours\n"
	if err := os.WriteFile(p.path("README.md"), []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.listKind(g, plan), p.unlistKind(g, plan)); err != nil || readme() != own {
		t.Errorf("a README of their own: %v\n%s", err, readme())
	}
}

// TestHeader: files in a checkout of the kit begin as its others do.
func TestHeader(t *testing.T) {
	p := newProject(t)
	if err := os.WriteFile(p.path("boilerplate.go.txt"), []byte("// Ours\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.addKind(only(t, p).Group, "v1", Kind{Kind: "Person", Plural: "people"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(p.path("registry", "backup", "person", "person.go"))
	if err != nil || !strings.HasPrefix(string(text), "// Ours\n\n") {
		t.Errorf("got %v and\n%.80s", err, text)
	}
}

// TestEdited: files of the kit that the team edited or deleted are found by their sums.
func TestEdited(t *testing.T) {
	p := newProject(t)
	if edited, err := p.edited(); err != nil || len(edited) > 0 {
		t.Errorf("a new project: got %v, %v, want nothing edited", edited, err)
	}
	if err := os.WriteFile(p.path("kit", "scripts", "kind.yaml"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.path("kit", "scripts", "build.sh")); err != nil {
		t.Fatal(err)
	}
	if edited, err := p.edited(); err != nil || !slices.Equal(edited,
		[]string{"scripts/build.sh", "scripts/kind.yaml"}) {
		t.Errorf("got %v, %v, want both files", edited, err)
	}
}

// TestNewer: a scaffold does not touch a project of a newer kit. That of a checkout has no version.
func TestNewer(t *testing.T) {
	p := &project{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.dir, "go.mod"), []byte("module m\n\nrequire "+kit+" v0.2.0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for own, refused := range map[string]bool{"v0.1.9": true, "v0.2.0": false, "v0.3.0": false,
		"(devel)": false, "": false} {
		if err := p.checkVersion(own); (err != nil) != refused {
			t.Errorf("version %q of a project with v0.2.0: got %v, want refused: %t", own, err, refused)
		}
	}
}
