// SPDX-License-Identifier: Apache-2.0

// Command certgen makes and inspects the certificates of an extension API server. It parses flags and prints what
// pkg/certs did; the rules of its output are:
//
//   - standard output holds the result, as text or JSON, and never a private key;
//   - standard error holds errors only, one line each, beginning with "certgen:";
//   - the exit code is 0 when all is well, 1 for a finding or a refusal, 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/cmd/internal/usage"
	"example.com/extension-apiserver/pkg/certs"
)

// exitFinding is the exit code of a finding or a refusal.
const exitFinding = 1

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], environment{stdout: os.Stdout, stderr: os.Stderr, now: time.Now})
	stop()
	os.Exit(code)
}

// environment is what commands take from the process, so that tests can give their own.
type environment struct {
	stdout, stderr io.Writer
	now            func() time.Time
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, env environment) int {
	cmd := newCommand(env, args)
	executed, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitFinding
	if _, ok := errors.AsType[*usage.Error](err); ok {
		code = usage.ExitCode
	}
	for _, e := range certs.Flatten(err) {
		text := e.Error()
		if _, ok := errors.AsType[*certs.InvalidError](e); ok {
			text, code = "--"+text, usage.ExitCode
		}
		fmt.Fprintln(env.stderr, "certgen: "+text)
	}
	if code == usage.ExitCode {
		fmt.Fprintf(env.stderr, "certgen: see %s --help\n", executed.CommandPath())
	}
	return code
}

func newCommand(env environment, args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certgen",
		Short: "Make and inspect the certificates of an extension API server",
		Long: `Make and inspect the certificates of an extension API server: the serving certificate that kube-apiserver
verifies, the client certificate with which kube-apiserver passes users on (front proxy), and their CAs.

Exit codes:
  0  all is well
  1  a finding or a refusal; standard error says what was expected, what was found and what to do
  2  wrong usage; nothing was read or written

Results go to standard output, errors to standard error. Private keys are only ever written to files of mode 0600.`,
		Example: `  # All certificates of the API server behind the Service widgets in the namespace demo
  certgen init --service widgets --namespace demo --out pki

  # What is in them, and is it still valid
  certgen inspect pki`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage.NoCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetOut(env.stdout)
	cmd.SetErr(env.stderr)
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetArgs(args)
	cmd.SetFlagErrorFunc(usage.FlagErrorFunc(args))
	cmd.AddCommand(newInitCommand(env), newInspectCommand(env), newVersionCommand(env))
	return cmd
}
