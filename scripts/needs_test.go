// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNeeds runs the script with different sets of installed commands.
func TestNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		commands []string // besides those of every system
		user     string
		args     []string
		code     int
		want     []string
	}{
		"nothing needed": {user: "1000", args: []string{"other"}},
		"all there":      {user: "1000", commands: []string{"protoc"}, args: []string{"generate"}},
		"missing": {user: "1000", args: []string{"test", "generate"}, code: 1,
			want: []string{"not root: tests of several hosts", "missing: ", "openssl (", "curl (", "node (", "npm (",
				"protoc (", "hint: apt-get install ", "openssl curl ", "nodejs npm protobuf-compiler"}},
		"FIPS": {user: "1000", args: []string{"fips"}, code: 1,
			want: []string{"missing: openssl (", "hint: apt-get install openssl\n"}},
		"root, not Debian": {user: "0", args: []string{"generate"}, code: 1,
			want: []string{"missing: protoc (", "hint: apt-get install protobuf-compiler"}},
		"root on Debian": {user: "0", commands: []string{"apt-get"}, args: []string{"generate"},
			want: []string{"Installing protobuf-compiler: protoc (", "apt-get update -qq",
				"apt-get install -y -qq --no-install-recommends protobuf-compiler"}},
		"no engine, root": {user: "0", commands: []string{"apt-get"}, args: []string{"kind"}, code: 1,
			want: []string{"missing: docker (",
				"hint: install docker and start it, or set KIND_EXPERIMENTAL_PROVIDER"}},
		"engine stopped": {user: "1000", commands: []string{"docker fails"}, args: []string{"kind"}, code: 1,
			want: []string{"missing: docker (", "hint: install docker and start it"}},
		"suites on kind": {user: "1000", commands: []string{"docker", "curl", "tinyproxy"},
			args: []string{"kind", "suites"}, code: 1, want: []string{"missing: openssl (",
				"hint: apt-get install openssl\n"}},
		"needed twice": {user: "1000", commands: []string{"docker", "openssl", "tinyproxy", "microsocks", "node",
			"npm"}, args: []string{"test", "suites"}, code: 1, want: []string{"curl ("}},
		"root in a container": {user: "0", commands: []string{"unshare fails", "apt-get"}, args: []string{"test"},
			code: 1, want: []string{"missing: namespaces (", "openssl (", "hint: apt-get install ", " openssl ",
				"hint: give the container CAP_SYS_ADMIN and CAP_NET_ADMIN"}},
		"apt-get that fails": {user: "0", commands: []string{"apt-get fails"}, args: []string{"generate"}, code: 1,
			want: []string{"hint: apt-get install protobuf-compiler"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, system := range []string{"bash", "cat"} {
				path, err := exec.LookPath(system)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(dir, system)); err != nil {
					t.Fatal(err)
				}
			}
			stub(t, dir, "id", "echo "+tc.user)
			for _, command := range tc.commands {
				command, fails := strings.CutSuffix(command, " fails")
				stub(t, dir, command, map[bool]string{true: "exit 100", false: `echo "${0##*/} $*" >&2`}[fails])
			}
			cmd := exec.CommandContext(t.Context(), "bash", append([]string{"needs.sh"}, tc.args...)...)
			cmd.Env = []string{"PATH=" + dir}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tc.code {
				t.Errorf("got %v and %q, want exit code %d", err, out.String(), tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("got %q, want %q", out.String(), want)
				}
			}
			if strings.Count(out.String(), "curl (") > 1 {
				t.Errorf("got %q, want curl once", out.String())
			}
			if len(tc.want) == 0 && out.Len() > 0 {
				t.Errorf("got %q, want nothing", out.String())
			}
		})
	}
}

func stub(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+filepath.Join(dir, "bash")+"\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
}

// TestTargets checks that each target looks for missing tools before it does anything else.
func TestTargets(t *testing.T) {
	kit, project := "Makefile", filepath.Join("internal", "scaffold", "templates", "project", "Makefile.tmpl")
	for _, tc := range []struct{ makefile, targets, want string }{
		{kit, "test", "scripts/needs.sh test generate"},
		{kit, "test-all", "scripts/needs.sh test fips generate verify kind suites"},
		{kit, "test-quickstart", "scripts/needs.sh kind generate"},
		{kit, "verify", "scripts/needs.sh generate verify"},
		{kit, "new", "scripts/needs.sh generate"},
		{kit, "kind-up kind-deploy", "scripts/needs.sh kind"},
		{kit, "kind-up kind-deploy kind-test kind-down", "scripts/needs.sh kind suites"},
		{project, "kind-deploy", "bash kit/scripts/needs.sh kind"},
	} {
		cmd := exec.CommandContext(t.Context(), "make", append(
			[]string{"--dry-run", "--no-print-directory", "-f", tc.makefile}, strings.Fields(tc.targets)...)...)
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "MAKEFLAGS=") // unset the variable of the make that runs this test
		out, err := cmd.CombinedOutput()
		if first, _, _ := strings.Cut(string(out), "\n"); err != nil || first != tc.want {
			t.Errorf("make %s: %v and first %q, want %q", tc.targets, err, first, tc.want)
		}
	}
}
