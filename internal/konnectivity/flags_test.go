// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"example.com/extension-apiserver/pkg/envtest"
)

// konnectivityProgram runs one of konnectivity's programs, which make controlplane builds, and returns what it prints. It is always one that
// ends by itself.
func konnectivityProgram(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(root, "bin", envtest.DefaultMinor, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make controlplane", err)
	}
	// Its exit code is no matter: what it says is compared.
	out, _ := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out)
}

// helpLine is a line of pflag's usage: name, type (none for bool), text, default (none for zero).
var helpLine = regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([-a-z]+)(?: (string|strings|int|uint|float32|duration|severity|Level|traceLocation|moduleSpec))? {2,}.*?(?:\(default ([^)]*)\))?$`)

// TestFlags: the tables are those of the programs, with types and defaults.
func TestFlags(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]flag{"proxy-server": serverFlags, "proxy-agent": agentFlags} {
		usage := konnectivityProgram(t, name, "--help")
		var want, got []string
		for _, m := range helpLine.FindAllStringSubmatch(usage, -1) {
			kind := map[string]string{"uint": "int", "Level": "int", "severity": "string", "traceLocation": "string", "moduleSpec": "string", "strings": "stringSlice", "": "bool"}[m[2]]
			if kind == "" {
				kind = m[2]
			}
			value := strings.Trim(m[3], `"`)
			switch {
			case m[1] == "help":
				continue
			case strings.HasSuffix(m[1], "-id") || strings.Contains(m[1], "threshold"):
				value = "" // random; a level that klog names otherwise
			}
			want = append(want, m[1]+" "+kind+" "+value)
		}
		newFlagSet(flags).VisitAll(func(f *pflag.Flag) {
			value := f.DefValue
			if slices.Contains([]string{"0", "0s", "false", "[]"}, value) || strings.Contains(f.Name, "threshold") {
				value = ""
			}
			got = append(got, f.Name+" "+f.Value.Type()+" "+value)
		})
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(want) < 40 {
			t.Errorf("%s has the flags\n%s\nthe table has\n%s", name, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
}

// TestArguments gives the arguments of every combination to the very programs, with the files where they are here. They validate all, and
// what is left to complain of is the last that they look at, which is wrong on purpose.
func TestArguments(t *testing.T) {
	t.Parallel()
	dir := newSet(t, nil)
	write(t, pair(dir), "token", "x")
	tried := map[string]bool{}
	for _, c := range combinations() {
		set, err := load(newSet(t, c.files(t)), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range slices.Concat(set.servers, set.agents) {
			name, wrong, want := "proxy-server", "--backend-dial-timeout=-1s", "backend-dial-timeout must be >= 0, got -1s"
			if slices.Contains(set.agents, p) {
				name, wrong, want = "proxy-agent", "--server-count-source=x", "--server-count-source must be one of '', 'default', 'max', got x"
			}
			// The server of one combination is that of another with other agents.
			key := fmt.Sprint(p.container.Args)
			if tried[key] {
				continue
			}
			tried[key] = true
			var args []string
			for _, arg := range p.container.Args {
				arg = strings.Replace(arg, "=/etc/kubernetes/konnectivity/", "="+pair(dir)+"/", 1)
				args = append(args, strings.Replace(arg, "=/var/run/secrets/konnectivity/", "="+pair(dir)+"/", 1))
			}
			if out := konnectivityProgram(t, name, append(args, wrong)...); !strings.Contains(out, want) {
				t.Errorf("%s: %s %q says\n%s\nwant %q", c, name, args, out, want)
			}
		}
	}
}
