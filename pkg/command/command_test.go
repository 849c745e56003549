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
	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/command/storagecommand"
	"example.com/extension-apiserver/sample"
)

var update = flag.Bool("update", false,
	"Write the golden file of the flags, and the page of the server in docs/reference.")

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
			// The tests do not run as a pod of a cluster.
			env.Setenv("KUBERNETES_SERVICE_HOST", "")
			return writeCertificates(env.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripttest.Exits},
	})
}

// writeCertificates creates the serving certificates a and b, each with its key.
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

// TestFlagNames: the flags of serve are those of the golden file, because users depend on them. A
// new version of the library can add flags. Review each new flag once: does it weaken the
// server's trust?
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

// TestReference: the page of the server has the commands and flags of the sample.
func TestReference(t *testing.T) {
	api := sample.API()
	root, err := newRootCommand(api, []Subcommand{storagecommand.New})
	if err != nil {
		t.Fatal(err)
	}
	options, err := apiserver.NewOptions(api)
	if err != nil {
		t.Fatal(err)
	}
	sections := options.Flags().FlagSets
	scripttest.Reference(t, root, *update, func(f *pflag.Flag) bool {
		for name, flags := range sections {
			if name != "server" && name != api.Name && flags.Lookup(f.Name) != nil {
				return true
			}
		}
		return false
	})
}

// TestLinks: only servers that import embeddedetcd or storagecommand link the server of etcd.
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

// TestInvalidAPI: for an API that cannot be served, Run starts nothing and returns 1.
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
