// SPDX-License-Identifier: Apache-2.0

package gobuild

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReportProgress checks that a build of more than two seconds prints how many packages of how
// many are compiled, and that a shorter one prints nothing.
func TestReportProgress(t *testing.T) {
	list := func(cmd *exec.Cmd) error {
		_, err := io.WriteString(cmd.Stdout, "a/b\n\nc\n\nd\n")
		return err
	}
	for name, tc := range map[string]struct {
		takes time.Duration
		said  string
		want  string
	}{
		"at once": {time.Second, "k8s.io/a\n", ""},
		"downloads": {3 * time.Second, "go: downloading k8s.io/a v1.0.0\ngo: downloading k8s.io/b v1.0.0\n",
			"building p: 2 modules downloaded\n"},
		"compiles": {3 * time.Second, "k8s.io/a\nk8s", "building p: 1 of 4 packages compiled\n"},
		"compiles for long": {13 * time.Second, "k8s.io/a\n",
			"building p: 1 of 4 packages compiled\nbuilding p: 1 of 4 packages compiled\n"},
		"links": {3 * time.Second, "", "building p\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &Log{}
				var out bytes.Buffer
				err := log.WithProgress(&out, "p", &exec.Cmd{}, list, func() error {
					_, err := io.WriteString(log, tc.said)
					<-time.After(tc.takes)
					return err
				})
				if err != nil || out.String() != tc.want {
					t.Errorf("got %q, %v; want %q", out.String(), err, tc.want)
				}
			})
		})
	}
}

// TestFailure checks that the output of a compiler is returned completely, and that an error about
// a lack of the machine is returned with a hint.
func TestFailure(t *testing.T) {
	for said, want := range map[string]string{
		"# p\np/a.go:1:2: undefined: x\n": "# p\np/a.go:1:2: undefined: x",
		"# p\np/a.go:9:2: syntax error: unexpected EOF, expecting }\n": "# p\np/a.go:9:2: syntax error: unexpected " +
			"EOF, expecting }",
		strings.Repeat("compile: write /tmp/x: no space left on device\n",
			20): "no space left on device; the build needs 4 GB once, in the directories of go env GOCACHE",
		"compile: write /tmp/x: disk quota exceeded\n":                                   "quota exceeded; the build needs 4 GB once",
		"k8s.io/a: module lookup disabled by GOPROXY=off\n":                              "GOPROXY=off; the build needs the Go module proxy once",
		"go: k8s.io/a: Get \"https://x/y\": dial tcp 10.0.0.1:443: connection refused\n": "connection refused; the build needs the Go module proxy once",
		"k8s.io/a@v1: Get \"https://x/y.zip\": EOF\n":                                    "EOF; the build needs the Go module proxy once",
		"go: k8s.io/a@v1: read \"https://x/y.zip\": unexpected EOF\n":                    "unexpected EOF; the build needs the Go module proxy once",
	} {
		log := &Log{}
		if _, err := io.WriteString(log, said); err != nil {
			t.Fatal(err)
		}
		got := log.Failure()
		if hints := strings.Contains(got, "; the build needs"); !strings.Contains(got, want) ||
			hints != strings.Contains(want, "; the build needs") || strings.Count(got, "\n") > strings.Count(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
