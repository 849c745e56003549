// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/extension-apiserver/internal/scripttest"
)

var update = flag.Bool("update", false, "Write the page of the command in docs/reference.")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"local-up": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripttest.Exits}})
}

func TestReference(t *testing.T) { scripttest.Reference(t, newCommand(), *update, nil) }

// TestExamples checks that the printed commands create the objects of a folder after the objects to
// which they refer.
func TestExamples(t *testing.T) {
	plans := "  kubectl create -f objects/plan.yaml -o yaml\n  kubectl get -f objects/stock.yaml -o yaml\n"
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"without prepare": {nil, plans},
		"empty prepare":   {[]string{"prepare/README.md"}, plans},
		"with prepare":    {[]string{"prepare/secret.yaml"}, "  kubectl apply -f objects/prepare\n" + plans},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "objects")
			for _, file := range append(tc.files, "plan.yaml", "stock.yaml") {
				kind := strings.TrimSuffix(filepath.Base(file), ".yaml")
				scripttest.Write(t, filepath.Join(dir, file), "apiVersion: example.org/v1\nkind: "+kind)
			}
			got := examples(dir, func(kind schema.GroupVersionKind) bool { return kind.Kind == "stock" })
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(got, dir, "objects")); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}
