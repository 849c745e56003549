// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"example.com/extension-apiserver/internal/scaffold"
	"example.com/extension-apiserver/internal/scripttest"
)

var update = flag.Bool("update", false, "Write the page of the command in docs/reference.")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"scaffold": main})
}

// TestScripts checks that scaffold rejects invalid input before it writes anything.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripttest.Exits},
		Setup: func(env *testscript.Env) error {
			cache, err := exec.Command("go", "env", "GOCACHE").Output()
			env.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
			return err
		}})
}

func TestReference(t *testing.T) { scripttest.Reference(t, scaffold.NewCommand(), *update, nil) }
