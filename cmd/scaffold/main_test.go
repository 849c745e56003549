// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"scaffold": main})
}

// TestScripts checks that scaffold rejects invalid input before it writes anything.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true})
}
