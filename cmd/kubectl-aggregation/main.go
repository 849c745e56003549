// SPDX-License-Identifier: Apache-2.0

// Command kubectl-aggregation is a kubectl plugin for developers and operators of aggregated
// APIs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
)

// errFailed is returned for a run in which a check failed. Its exit code distinguishes it from a
// run that could not be carried out.
var errFailed = &cli.Error{Code: 3}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal terminates the command immediately
	code := run(ctx, os.Args[1:])
	os.Exit(code)
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-aggregation",
		Short: "Check aggregated APIs",
		Example: `  # Check that a resource behaves like a built-in resource
  kubectl aggregation conformance --sample=flunder.yaml`,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl aggregation"},
	}
	cmd.AddCommand(newConformanceCommand(), newDoctorCommand(), newProbeCommand())
	cli.AddVersion(cmd)
	return cmd
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd)
}
