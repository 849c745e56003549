// SPDX-License-Identifier: Apache-2.0

// Command extension-apiserver is an API server behind the aggregation layer of kube-apiserver. What it prints on
// standard error is its log, and at the end the reason if it failed; the exit codes are:
//
//   - 0 when all is well;
//   - 1 when the server could not start or stopped by an error;
//   - 2 when the command line is wrong: every problem with it is listed, and nothing was started.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/cmd/internal/usage"
)

func main() {
	os.Exit(run(genericapiserver.SetupSignalContext(), os.Args[1:], os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	executed, err := newRootCommand(args).ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var wrong *usage.Error
	if !errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "extension-apiserver: %v\n", err)
		return 1
	}
	problems := "1 problem"
	if n := len(wrong.Problems); n > 1 {
		problems = fmt.Sprintf("%d problems", n)
	}
	fmt.Fprintf(stderr, "extension-apiserver: nothing was started, the command line has %s:\n", problems)
	for _, problem := range wrong.Problems {
		fmt.Fprintf(stderr, "  * %s\n", strings.ReplaceAll(problem.Error(), "\n", "\n    "))
	}
	fmt.Fprintf(stderr, "See: %s --help\n", executed.CommandPath())
	return usage.ExitCode
}

func newRootCommand(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "extension-apiserver",
		Short: "An API server behind the aggregation layer of kube-apiserver",
		// Errors are printed once, by run; the usage text would bury them.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage.NoCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetArgs(args)
	root.SetFlagErrorFunc(usage.FlagErrorFunc(args))
	root.AddCommand(newServeCommand(args), newAPIServicesCommand(), newStorageCommand(), newVersionCommand())
	return root
}
