// SPDX-License-Identifier: Apache-2.0

// Package scripttest provides helpers beyond testscript for tests that run commands.
package scripttest

import (
	"errors"
	"os/exec"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits runs a command that must exit with the given code: "exits 2 certgen init".
func Exits(ts *testscript.TestScript, _ bool, args []string) {
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
