// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"example.com/extension-apiserver/internal/scripttest"
)

var update = flag.Bool("update", false, "Write the page of the command in docs/reference.")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"certgen": func() {
		if runtime.GOOS != "windows" {
			main()
		}
		os.Exit(run(context.Background(), os.Args[1:], environment{stdout: slashes{os.Stdout},
			stderr: slashes{os.Stderr}, now: time.Now}))
	}})
}

// asSlashes returns a writer that replaces backslashes with slashes on Windows, because the
// scripts use slashes.
func asSlashes(w io.Writer) io.Writer {
	if runtime.GOOS == "windows" {
		return slashes{w}
	}
	return w
}

type slashes struct{ io.Writer }

func (s slashes) Write(data []byte) (int, error) {
	_, err := strings.NewReplacer(`\\`, "/", `\`, "/").WriteString(s.Writer, string(data))
	return len(data), err
}

func TestScripts(t *testing.T) {
	// certgen-at runs certgen in this process with a shifted clock and absolute paths:
	// "certgen-at -2160h init --dir $WORK/pki ...".
	certgenAt := func(ts *testscript.TestScript, neg bool, args []string) {
		offset, err := time.ParseDuration(args[0])
		ts.Check(err)
		now := func() time.Time { return time.Now().Add(offset) }
		code := run(t.Context(), args[1:], environment{stdout: asSlashes(ts.Stdout()),
			stderr: asSlashes(ts.Stderr()), now: now})
		if neg != (code != 0) {
			ts.Fatalf("got exit code %d", code)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// Use the error texts of this operating system.
			env.Setenv("NOT_FOUND", syscall.Errno(2).Error())
			refused := syscall.ECONNREFUSED
			if runtime.GOOS == "windows" {
				refused = 10061
			}
			env.Setenv("REFUSED", refused.Error())
			return nil
		},
		RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"certgen-at": certgenAt,
			"exits":      scripttest.Exits,
			"no-secrets": noSecrets,
		},
	})
}

func TestReference(t *testing.T) {
	scripttest.Reference(t, newCommand(environment{now: time.Now}), *update, nil)
}

// noSecrets fails if the output of the last command contains a private key or a line of one of
// the key files.
func noSecrets(ts *testscript.TestScript, _ bool, keyFiles []string) {
	output := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	if strings.Contains(output, "PRIVATE KEY") {
		ts.Fatalf("a key is in the output")
	}
	for _, file := range keyFiles {
		data, err := os.ReadFile(ts.MkAbs(file))
		ts.Check(err)
		for line := range strings.SplitSeq(string(data), "\n") {
			if line != "" && strings.Contains(output, line) {
				ts.Fatalf("a line of %s is in the output", file)
			}
		}
	}
}
