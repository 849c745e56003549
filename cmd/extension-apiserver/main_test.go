// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"extension-apiserver": main})
}

// TestScripts runs the scripts that need the build info of a binary: only the test of a command
// has its modules.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true})
}
