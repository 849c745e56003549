// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/x509"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/pkg/certs"
	"example.com/extension-apiserver/sample"
)

var update = flag.Bool("update", false, "update the golden file of the flags")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"extension-apiserver": func() { os.Exit(Run(sample.API())) }})
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
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

// exits runs a command that must end with exactly the given code: "exits 2 extension-apiserver serve --foo".
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("got exit code %d, want %d", got, want)
	}
}

// TestFlagNames: which flags there are is a promise to those who deploy the server. A new version of the library can add
// some in silence; each is to be looked at once: does it weaken what the server relies on?
func TestFlagNames(t *testing.T) {
	golden := filepath.Join("testdata", "flags.golden")
	serve, _, err := newRootCommand(sample.API(), nil).Find([]string{"serve"})
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
		t.Errorf("flags of serve (-want +got), update them with: go test ./pkg/command -run TestFlagNames -update\n%s", diff)
	}
}

// TestInvalidAPI: nothing is started for an API that cannot be served.
func TestInvalidAPI(t *testing.T) {
	api := sample.API()
	api.StorageVersion, api.OpenAPI = "v7", nil
	var stderr strings.Builder
	if got := run(t.Context(), api, []string{"serve"}, &stderr); got != 1 {
		t.Errorf("got exit code %d, want 1", got)
	}
	for _, want := range []string{"extension-apiserver: the API cannot be served: [", "OpenAPI is not set", `StorageVersion is "v7"`} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("got %q, want %q in it", stderr.String(), want)
		}
	}
}
