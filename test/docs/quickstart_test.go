// SPDX-License-Identifier: Apache-2.0

//go:build quickstart

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/scripttest"
)

const kit = "example.com/extension-apiserver"

// day is a first day with the kit.
type day struct {
	page, dir string
}

// section is the blocks of commands under a heading.
func (d day) section(t *testing.T, heading string) []string {
	t.Helper()
	return scripttest.Blocks(scripttest.Section(t, d.page, heading))
}

// follow does what a section says, in the project.
func (d day) follow(t *testing.T, heading string) (out string) {
	t.Helper()
	for _, block := range d.section(t, heading) {
		began := time.Now()
		out += scripttest.Shell(t, d.dir, block)
		t.Logf("%s: %.0f s", heading, time.Since(began).Seconds())
	}
	scripttest.Commit(t, d.dir)
	return out
}

// contains fails for each pattern that is not in what was printed.
func contains(t *testing.T, what, out string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%s: got no %q in\n%s", what, pattern, out)
		}
	}
}

// shortDir is a directory like t.TempDir, whose path is short enough for a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "day-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// begin makes a checkout, and a project from it, as a page says.
func begin(t *testing.T, page string) day {
	t.Helper()
	parent := shortDir(t)
	checkout := filepath.Join(parent, "kit")
	scripttest.Shell(t, filepath.Join("..", ".."), "scripts/copy-tree.sh "+checkout)
	scripttest.Commit(t, checkout)
	d := day{page: filepath.Join(checkout, "docs", page), dir: filepath.Join(parent, "backup")}
	out := scripttest.Shell(t, checkout, d.section(t, "A project")[0])
	contains(t, "make new", out, `files of your own with [0-9]+ lines`, `refers to the kit in .* by replace`)
	t.Logf("%s", regexp.MustCompile(`[0-9]+ files of your own with [0-9]+ lines`).FindString(out))
	scripttest.Commit(t, d.dir)
	return d
}

// noBackupPlan fails where something mentions the first kind.
func (d day) noBackupPlan(t *testing.T) {
	t.Helper()
	if out := scripttest.Shell(t, d.dir, "git grep -il backupplan -- ':!kit' || true"); out != "" {
		t.Errorf("files that mention the deleted kind:\n%s", out)
	}
}

// TestQuickstart: from a checkout to a project whose kinds come and go. Each step works on what the one before left.
func TestQuickstart(t *testing.T) {
	began := time.Now()
	d := begin(t, "quickstart.md")
	run := d.section(t, "Run it")
	running := scripttest.MakeRun(t, d.dir, run[0])
	out := scripttest.Shell(t, d.dir, run[1])
	t.Logf("from an empty directory to kubectl get: %.0f s", time.Since(began).Seconds())
	contains(t, "kubectl", out, `backupplan.backup.example.org/sample created`, `sample +0 3 \* \* \* +true`,
		`(?m)^backupplan.backup.example.org/sample$`, `schedule <string>|FIELD: schedule`)
	running.Interrupt(t)

	d.rules(t, run)
	t.Setenv("GOPROXY", "off") // all that is needed was downloaded
	out = d.follow(t, "A second kind")
	contains(t, "kind add", out, "created registry/backup/backuptarget/backuptarget.go", "changed README.md")
	d.follow(t, "A controller")
	d.follow(t, "A second version")
	d.conversion(t)
	remove, _, _ := strings.Cut(d.section(t, "Delete the first kind")[0], "\n") // TestDeployed runs the tests after it
	scripttest.Shell(t, d.dir, remove+"\ngo vet ./...")
	scripttest.Commit(t, d.dir)
	d.noBackupPlan(t)
}

// TestDeployed: the second half of the page, without the steps that it does not need.
func TestDeployed(t *testing.T) {
	d := begin(t, "quickstart.md")
	d.follow(t, "A second kind")
	d.follow(t, "Delete the first kind")
	d.noBackupPlan(t)
	t.Run("On kind", func(t *testing.T) {
		// Should a step fail; the last one removes the cluster as well.
		t.Cleanup(func() { scripttest.Shell(t, d.dir, "make kind-down") })
		scripttest.Shell(t, d.dir, "git remote add origin https://somebody:secret@git.example.org/platform/backup")
		t.Setenv("IMAGE_LICENSES", "MIT")
		out := d.follow(t, "On kind")
		contains(t, "kind", out, `--- PASS: TestConformance/backuptarget.yaml `,
			`--- PASS: TestConformance/backuptarget.yaml/apply/force`)
		labels := scripttest.Shell(t, d.dir, `grep -ahoE '"org.opencontainers.image.(source|licenses)":"[^"]*"' bin/images/backup-apiserver/blobs/sha256/*`)
		contains(t, "labels of the server's image", labels,
			`(?m)^"org.opencontainers.image.source":"https://git.example.org/platform/backup"$`,
			`(?m)^"org.opencontainers.image.licenses":"MIT"$`)
	})
	t.Setenv("GOPROXY", "off") // all that is needed was downloaded
	d.follow(t, "Upgrade")
	scripttest.Shell(t, d.dir, "make verify")
}

// rules adds fields and rules, and tries them.
func (d day) rules(t *testing.T, run []string) {
	t.Helper()
	const heading = "Fields and rules"
	blocks := d.section(t, heading)
	if len(blocks) != 4 {
		t.Fatalf("%s: got %d blocks of commands, want 4", heading, len(blocks))
	}
	scripttest.Shell(t, d.dir, blocks[0])
	scripttest.Shell(t, d.dir, blocks[1])
	scripttest.Commit(t, d.dir)
	running := scripttest.MakeRun(t, d.dir, run[0])
	environment, _, _ := strings.Cut(run[1], "\n")
	out := scripttest.Shell(t, d.dir, environment+"\n"+blocks[2])
	contains(t, "an allowed change", out, "sample patched", "(?s)enum.*Daily.*Monthly.*Weekly")
	out = scripttest.Shell(t, d.dir, environment+"\n! {\n"+blocks[3]+"}")
	contains(t, "a plan against the rules", out, "spec.schedule: Required value: retention is about scheduled backups",
		`spec.retention\[0\].period: Unsupported value: "Hourly"`, `spec.retention\[0\].keep: Invalid value: -1`)
	out = scripttest.Shell(t, d.dir, environment+`
		! kubectl patch bp sample --type=merge -p '{"spec":{"schedule":"0 4 * * *"}}'`)
	contains(t, "a change of the schedule", out, "spec.schedule: Invalid value: field is immutable")
	running.Interrupt(t)
}

// conversion renames a field in one of two versions: the conversions that a person must write are named, and what they
// lose fails a test.
func (d day) conversion(t *testing.T) {
	t.Helper()
	v2 := filepath.Join("apis", "backup", "v2")
	out := scripttest.Shell(t, d.dir, `sed -i 's|\bdescription\b|summary|; s|\bDescription string|Summary string|' `+v2+`/backupplan.go
		! make generate 2>&1`)
	for _, function := range []string{"Convert_v1_BackupPlanSpec_To_v2_BackupPlanSpec",
		"Convert_v2_BackupPlanSpec_To_v1_BackupPlanSpec"} {
		contains(t, "a renamed field", out, "generate: write the function "+function)
	}
	scripttest.Write(t, filepath.Join(d.dir, v2, "conversion.go"), `package v2

import (
	"k8s.io/apimachinery/pkg/conversion"

	v1 "git.example.org/platform/backup/apis/backup/v1"
)

func Convert_v2_BackupPlanSpec_To_v1_BackupPlanSpec(in *BackupPlanSpec, out *v1.BackupPlanSpec, s conversion.Scope) error {
	return autoConvert_v2_BackupPlanSpec_To_v1_BackupPlanSpec(in, out, s)
}

func Convert_v1_BackupPlanSpec_To_v2_BackupPlanSpec(in *v1.BackupPlanSpec, out *BackupPlanSpec, s conversion.Scope) error {
	return autoConvert_v1_BackupPlanSpec_To_v2_BackupPlanSpec(in, out, s)
}
`)
	out = scripttest.Shell(t, d.dir, "make generate\n! go test -run TestRoundTrip .")
	contains(t, "a conversion that loses a field", out, "--- FAIL: TestRoundTrip/backup.example.org/v2/BackupPlan ",
		`-.*Description:`)
	scripttest.Shell(t, d.dir, `cd `+v2+` && sed -i -z 's|return autoConvert_v2|out.Description = in.Summary\n\t&|; s|return autoConvert_v1|out.Summary = in.Description\n\t&|' conversion.go
		cd - && go test -run TestRoundTrip .`)
	scripttest.Shell(t, d.dir, "git reset -q --hard && git clean -qfd")
}
