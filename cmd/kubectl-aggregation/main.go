// SPDX-License-Identifier: Apache-2.0

// Command kubectl-aggregation is a kubectl plugin for developers and operators of aggregated
// APIs.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/version"
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
		Use:         "kubectl-aggregation",
		Short:       "Check aggregated APIs",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl aggregation"},
	}
	cmd.AddCommand(newConformanceCommand(), newVersionCommand())
	cmd.Version = versionText(version.Get())
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.Flags().Bool("version", false, "Print the version and exit.")
	return cmd
}

func newVersionCommand() *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Example: `  # Print the version as JSON
  kubectl aggregation version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := version.Get()
			return format.Print(cmd.OutOrStdout(), info, func(w io.Writer) { fmt.Fprintln(w, versionText(info)) })
		},
	}
	cli.AddOutputFlag(cmd, &format)
	return cmd
}

// versionText formats the version for the subcommand version and the flag --version.
func versionText(info version.Info) string {
	return fmt.Sprintf("kubectl-aggregation %s (%s, %s)", info.Version, info.GoVersion, info.Platform)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	cmd := newCommand()
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd)
}
