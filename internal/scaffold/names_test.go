// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNewRefuses: everything that is wrong is said at once, and nothing is written.
func TestNewRefuses(t *testing.T) {
	valid := func() newOptions {
		return newOptions{
			dir: filepath.Join(t.TempDir(), "p"), module: "git.example.org/team/backup", group: "backup.example.org",
			version: "v1",
			kind:    Kind{Kind: "BackupPlan", Plural: "backupplans"},
		}
	}
	if o := valid(); len(o.validate()) > 0 {
		t.Fatalf("got %v, want nothing wrong", o.validate())
	}
	for name, tc := range map[string]struct {
		change func(*newOptions)
		want   []string
	}{
		"all at once": {func(o *newOptions) { o.dir, o.module, o.group, o.kind.Kind = ".", "a b", "one", "lower" },
			[]string{`directory .: not empty`, `module "a b"`, `group "one": expected a name with a dot`,
				`kind "lower"`}},
		"no directory": {func(o *newOptions) { o.dir = "" }, []string{"--dir is required"}},
		"group of Kubernetes": {func(o *newOptions) { o.group = "x.k8s.io" },
			[]string{"reserved for Kubernetes"}},
		"group that is a Go keyword": {func(o *newOptions) { o.group = "func.example.org" },
			[]string{`the name "func"`}},
		"group named as a folder": {func(o *newOptions) { o.group = "client.example.org" },
			[]string{`the name "client"`}},
		"kind that is a Go keyword": {func(o *newOptions) { o.kind.Kind = "Func" }, []string{`the name "func"`}},
		"kind of a list":            {func(o *newOptions) { o.kind.Kind = "PlanList" }, []string{"reserved by Kubernetes"}},
		"plural equal to the singular": {func(o *newOptions) { o.kind.Kind, o.kind.Plural = "Sheep", "sheep" },
			[]string{"--plural"}},
		"invalid version": {func(o *newOptions) { o.version = "v1.2" }, []string{`version "v1.2"`}},
		"controller without status": {func(o *newOptions) { o.kind.Controller = true },
			[]string{"--controller is set and --subresources has no status"}},
		"scale alone": {func(o *newOptions) { o.kind.Scale = true }, []string{"scale without status"}},
		"a field twice": {func(o *newOptions) {
			o.kind.Columns = []Field{{Path: "spec.a", Type: "string"}, {Path: "spec.a", Type: "integer"}}
		}, []string{"has the types string and integer"}},
		"column of a missing status": {func(o *newOptions) {
			o.kind.Columns = []Field{{Path: "status.a",
				Type: "string"}}
		}, []string{"no status"}},
		"name of the server": {func(o *newOptions) { o.name = "server" }, []string{"such as backup-apiserver"}},
		"module of the kit":  {func(o *newOptions) { o.module = kit }, []string{"is the kit's"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid()
			tc.change(&o)
			got := errors.Join(o.validate()...)
			for _, want := range tc.want {
				if got == nil || !strings.Contains(got.Error(), want) {
					t.Errorf("got %v, want %q in it", got, want)
				}
			}
		})
	}
}

func TestParseField(t *testing.T) {
	for text, want := range map[string]Field{
		"spec.schedule":          {Path: "spec.schedule", Type: "string"},
		"spec.suspended:boolean": {Path: "spec.suspended", Type: "boolean"},
		"status.lastRun:integer": {Path: "status.lastRun", Type: "integer"},
	} {
		if got, err := parseField(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"schedule":        "expected spec.NAME",
		"spec.a.b":        "expected spec.NAME",
		"spec.Upper":      "expected spec.NAME",
		"spec.type":       "expected spec.NAME",
		"spec.size":       "a method Size",
		"spec.a:duration": "expected string, boolean or integer",
	} {
		if _, err := parseField(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestHeading: the words of a column's heading are separate, because kubectl prints capital letters.
func TestHeading(t *testing.T) {
	for path, want := range map[string]string{"spec.schedule": "Schedule", "spec.instanceName": "Instance Name",
		"spec.podCIDR": "Pod CIDR", "status.ipv4Address": "Ipv4 Address"} {
		if got := (Field{Path: path}).Heading(); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// TestTools: new reports missing tools before it writes anything.
func TestTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o := newOptions{dir: filepath.Join(t.TempDir(), "p"), module: "git.example.org/team/backup",
		group: "backup.example.org", version: "v1",
		kind: Kind{Kind: "BackupPlan", Plural: "backupplans"}}
	err := errors.Join(o.validate()...)
	for _, name := range []string{"bash", "git", "protoc"} {
		if err == nil || !strings.Contains(err.Error(), "command "+name+" not found") {
			t.Errorf("without %s: got %v, want an error that names it", name, err)
		}
	}
}

// TestParseSubresource: --subresources besides status and scale.
func TestParseSubresource(t *testing.T) {
	for text, want := range map[string]Subresource{
		"cancel:action":    {"cancel", "action"},
		"fail-over:action": {"fail-over", "action"},
		"log":              {"log", "log"},
		"log:stream":       {"log", "log"},
		"shell:stream":     {"shell", "stream"},
	} {
		if got, err := parseSubresource(text); err != nil || got != want {
			t.Errorf("%s: got %v and the error %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "cancel", "cancel:log", ":action", "Cancel:action", "9:stream", "a/b:action", "log:log:log"} {
		if got, err := parseSubresource(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	twice := Kind{Kind: "Run", Plural: "runs", Others: []Subresource{{"stop", "action"}, {"stop", "stream"}}}
	if got := fmt.Sprint(twice.validate()); !strings.Contains(got, "--subresources has stop twice") ||
		!strings.Contains(got, "the action stop without status") {
		t.Errorf("got %s, want both problems", got)
	}
}

// TestPluralMethod: the clients of irregular plurals are named as scripts/generate.sh has it.
func TestPluralMethod(t *testing.T) {
	for kind, tc := range map[string]struct{ plural, want string }{
		"BackupPlan": {"backupplans", "BackupPlans"}, "Person": {"people", "People"},
		"MatrixIndex": {"matrixindices", "MatrixIndices"}, "Ox": {"cattle", "Cattle"},
	} {
		if got := (data{kindData: Kind{Kind: kind, Plural: tc.plural}}).PluralMethod(); got != tc.want {
			t.Errorf("%s: got %s, want %s", kind, got, tc.want)
		}
	}
}

// TestVariable: acronyms are written as Go has them.
func TestVariable(t *testing.T) {
	for kind, want := range map[string]string{"BackupPlan": "backupPlan", "DNSRecord": "dnsRecord", "VM": "vm",
		"X509Chain": "x509Chain", "Type": "typeObject"} {
		if got := (Kind{Kind: kind}).Variable(); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
}

// TestPlurals: what is regular is found, as code-generator does.
func TestPlurals(t *testing.T) {
	got := map[string]string{}
	for _, kind := range []string{"BackupPlan", "Policy", "Box", "Class", "Day"} {
		got[kind] = plural(kind)
	}
	want := map[string]string{"BackupPlan": "backupplans", "Policy": "policies", "Box": "boxes", "Class": "classes",
		"Day": "days"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plurals (-want +got):\n%s", diff)
	}
}

// TestShellWord: the command that is printed after new goes to the directory, whatever its name is.
func TestShellWord(t *testing.T) {
	parent := t.TempDir()
	for _, dir := range []string{"plain", "a b", "a;touch x", "it's", "$HOME", "-", "-P"} {
		path := filepath.Join(parent, dir)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, written := range []string{path, dir} {
			cmd := exec.CommandContext(t.Context(), "bash", "-c", "cd "+shellWord(written)+" && pwd")
			cmd.Dir = parent
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != path+"\n" {
				t.Errorf("cd %s: %v, got %q, want %q", shellWord(written), err, out, path)
			}
		}
	}
}
