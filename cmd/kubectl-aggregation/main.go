// SPDX-License-Identifier: Apache-2.0

// Command kubectl-aggregation is a plugin of kubectl for those who run or write aggregated APIs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/usage"
)

// exitFailed is the exit code when a check failed, for scripts that tell it from a run that could not be made.
const exitFailed = 3

// errFailed ends the command after what it has to say was written.
var errFailed = errors.New("a check failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the command at once
	code := run(ctx, os.Args[1:])
	os.Exit(code)
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:          "kubectl-aggregation",
		Short:        "Look after aggregated APIs",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl aggregation"},
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(newConformanceCommand())
	return cmd
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetFlagErrorFunc(usage.FlagErrorFunc(args))
	executed, err := cmd.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return exitFailed
	}
	code, problems := 1, []error{err}
	if wrong, ok := errors.AsType[*usage.Error](err); ok {
		code, problems = usage.ExitCode, wrong.Problems
	}
	for _, problem := range problems {
		fmt.Fprintf(os.Stderr, "kubectl aggregation: %v\n", problem)
	}
	if code == usage.ExitCode {
		fmt.Fprintf(os.Stderr, "kubectl aggregation: see %s --help\n", executed.CommandPath())
	}
	return code
}
