// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of a server: serve, and what operates it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/internal/usage"
	"example.com/extension-apiserver/pkg/apiserver"
)

// Run executes the command line of the process, for a server of the API, with more commands beside serve, apiservices and
// version, and returns its exit code:
//
//   - 0 when all is well;
//   - 1 when the server could not start or stopped by an error;
//   - 2 when the command line is wrong: every problem with it is listed, and nothing was started.
//
// What it prints on standard error is the log, and at the end the reason if it failed.
func Run(api apiserver.API, more ...Subcommand) int {
	return run(genericapiserver.SetupSignalContext(), api, more, os.Args[1:], os.Stderr)
}

// Subcommand makes a command for a server of the API. storagecommand.New is one.
type Subcommand func(apiserver.API) *cobra.Command

func run(ctx context.Context, api apiserver.API, more []Subcommand, args []string, stderr io.Writer) int {
	if err := api.Validate(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", api.Name, err)
		return 1
	}
	executed, err := newRootCommand(api, more, args).ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var wrong *usage.Error
	if !errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "%s: %v\n", api.Name, err)
		return 1
	}
	problems := "1 problem"
	if n := len(wrong.Problems); n > 1 {
		problems = fmt.Sprintf("%d problems", n)
	}
	fmt.Fprintf(stderr, "%s: nothing was started, the command line has %s:\n", api.Name, problems)
	for _, problem := range wrong.Problems {
		fmt.Fprintf(stderr, "  * %s\n", strings.ReplaceAll(problem.Error(), "\n", "\n    "))
	}
	fmt.Fprintf(stderr, "See: %s --help\n", executed.CommandPath())
	return usage.ExitCode
}

func newRootCommand(api apiserver.API, more []Subcommand, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   api.Name,
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
	root.AddCommand(newServeCommand(api, args), newAPIServicesCommand(api), newVersionCommand(api))
	for _, newCommand := range more {
		root.AddCommand(newCommand(api))
	}
	return root
}
