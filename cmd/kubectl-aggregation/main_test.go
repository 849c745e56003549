// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"example.com/extension-apiserver/internal/scripttest"
)

var update = flag.Bool("update", false, "Write the page of the command in docs/reference.")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-aggregation": func() {
		os.Exit(
			run(context.Background(), os.Args[1:]))
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripttest.Exits}})
}

func TestReference(t *testing.T) { scripttest.Reference(t, newCommand(), *update, nil) }
