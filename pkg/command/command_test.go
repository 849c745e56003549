// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/x509"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/command/storagecommand"
	"example.com/extension-apiserver/sample"
)

var update = flag.Bool("update", false, "update the golden file of the flags")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"extension-apiserver": func() {
		os.Exit(
			Run(sample.API(), storagecommand.New))
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// No pod of a cluster, wherever the tests run.
			env.Setenv("KUBERNETES_SERVICE_HOST", "")
			return writeCertificates(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripttest.Exits},
	})
}

// writeCertificates makes the serving certificates a and b, each with its key.
func writeCertificates(dir string) error {
	ca, err := certs.NewCA(certs.CAOptions{Name: "serving-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{name + ".demo.svc"}})
		if err != nil {
			return err
		}
		if err := pair.Write(filepath.Join(dir, name), certs.Bundle{ca.Certificate}); err != nil {
			return err
		}
	}
	return nil
}

// TestFlagNames: which flags there are is a promise to those who deploy the server. A new version of the library can
// add some in silence; each is to be looked at once: does it weaken what the server relies on?
func TestFlagNames(t *testing.T) {
	golden := filepath.Join("testdata", "flags.golden")
	root, err := newRootCommand(sample.API(), nil)
	if err != nil {
		t.Fatal(err)
	}
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	serve.Flags().VisitAll(func(f *pflag.Flag) { got = append(got, "--"+f.Name) })
	slices.Sort(got)
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields(string(want)), got); diff != "" {
		t.Errorf("flags of serve (-want +got), update them with: go test ./pkg/command -run TestFlagNames -update\n%s",
			diff)
	}
}

// TestLinks: a server that does not ask for an embedded etcd and the commands for it does not link the server of etcd.
func TestLinks(t *testing.T) {
	for _, tc := range []struct {
		pkg  string
		want bool
	}{{".", false}, {"../embeddedetcd", true}, {"./storagecommand", true}} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", tc.pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("go list -deps %s: %v: %s", tc.pkg, err, out)
		}
		if got := strings.Contains(string(out), "\ngo.etcd.io/etcd/server/"); got != tc.want {
			t.Errorf("%s links the server of etcd: got %v, want %v", tc.pkg, got, tc.want)
		}
	}
}

// TestInvalidAPI: nothing is started for an API that cannot be served.
func TestInvalidAPI(t *testing.T) {
	api := sample.API()
	api.Groups[0].StorageVersion, api.OpenAPI = "v7", nil
	var stderr strings.Builder
	if got := run(t.Context(), api, nil, []string{"serve"}, &stderr); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	for _, want := range []string{"extension-apiserver: the API cannot be served: [", "OpenAPI is required",
		`StorageVersion is "v7"`} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("got %q, want %q in it", stderr.String(), want)
		}
	}
}
