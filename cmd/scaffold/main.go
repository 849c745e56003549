// SPDX-License-Identifier: Apache-2.0

// Command scaffold makes a team's project, and changes its kinds, versions and groups.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"example.com/extension-apiserver/internal/scaffold"
	"example.com/extension-apiserver/internal/usage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	cmd := scaffold.NewCommand()
	cmd.SetArgs(args)
	cmd.SetFlagErrorFunc(usage.FlagErrorFunc(args))
	executed, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code, problems := 1, []error{err}
	if wrong, ok := errors.AsType[*usage.Error](err); ok {
		code, problems = usage.ExitCode, wrong.Problems
	}
	for _, problem := range problems {
		fmt.Fprintf(os.Stderr, "scaffold: %v\n", problem)
	}
	if code == usage.ExitCode {
		fmt.Fprintf(os.Stderr, "scaffold: see %s --help\n", executed.CommandPath())
	}
	return code
}
