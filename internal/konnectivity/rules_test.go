// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

var (
	static  = shipped{mode: "grpc-uds"}
	tcp     = shipped{mode: "http-connect-tcp", mtls: true}
	sidecar = shipped{sidecar: true, mode: "grpc-uds"}
)

// example is a correct combination and a change that breaks it.
type example struct {
	id, name string
	set      shipped
	replace  []string // pairs of existing and new text, in all files
	change   func(t *testing.T, dir string)
	want     string             // in the evidence, or for a fix in the fix
	severity catalogue.Severity // empty: error
	also     []string           // other rules that the same mistake breaks
}

// TestRules: each rule finds its mistakes, and no other rule reports them.
func TestRules(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, tc := range examples {
		tested[tc.id] = true
		t.Run(tc.id+" "+tc.name, func(t *testing.T) {
			t.Parallel()
			files := tc.set.files(t)
			for pair := range slices.Chunk(tc.replace, 2) {
				found := false
				for name, text := range files {
					broken := strings.ReplaceAll(text, pair[0], pair[1])
					found = found || broken != text
					files[name] = broken
				}
				if !found {
					t.Fatalf("%q is in no file", pair[0])
				}
			}
			dir := newSet(t, files)
			if tc.change != nil {
				tc.change(t, dir)
			}
			tc.compare(t, check(t, dir))
		})
	}
	for _, r := range Rules() {
		if !tested[r.ID] {
			t.Errorf("rule %s has no example", r.ID)
		}
	}
}

func (tc example) compare(t *testing.T, report *verify.Report) {
	t.Helper()
	severity := tc.severity
	if severity == "" {
		severity = catalogue.Error
	}
	found := false
	for _, f := range report.Findings {
		switch {
		case f.ID == tc.id:
			found = found || f.Severity == severity && strings.Contains(f.Evidence+"; "+f.Fix, tc.want)
			if f.Object == "" || f.Fix == "" {
				t.Errorf("%s reports neither the place nor what to do: %+v", f.ID, f)
			}
		case !slices.Contains(tc.also, f.ID):
			t.Errorf("%s is found too: %s: %s", f.ID, f.Object, f.Evidence)
		}
	}
	if !found {
		t.Errorf("got %+v, want %s %s with %q", report.Findings, severity, tc.id, tc.want)
	}
}

// pair returns the path of the key pairs in a set.
func pair(dir string, path ...string) string {
	return filepath.Join(append([]string{dir, "pki"}, path...)...)
}

func remove(path ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.RemoveAll(pair(dir, path...)); err != nil {
			t.Fatal(err)
		}
	}
}

// put replaces a file of one key pair with that of another.
func put(from, to string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		text := readFile(t, pair(dir, from))
		if err := os.Remove(pair(dir, to)); err != nil {
			t.Fatal(err)
		}
		write(t, pair(dir), to, text)
	}
}

// embedCA embeds the CA of the server's kubeconfig in the kubeconfig.
func embedCA(t *testing.T, dir string) {
	t.Helper()
	ca := base64.StdEncoding.EncodeToString([]byte(readFile(t, pair(dir, "kubeconfig", certs.BundleFile))))
	const name = "kubeconfig/konnectivity-server.kubeconfig"
	text := regexp.MustCompile(`certificate-authority: .*`).ReplaceAllString(readFile(t, pair(dir, name)),
		"certificate-authority-data: "+ca)
	write(t, pair(dir), name, text)
}
