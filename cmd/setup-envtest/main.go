// SPDX-License-Identifier: Apache-2.0

// Command setup-envtest builds the programs that local control planes and tests need, into a cache
// that all projects of a machine share. It compiles within seconds, and reports the progress of
// builds that take minutes. A second run does nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := cli.Run(ctx, newCommand())
	stop()
	os.Exit(code)
}

func newCommand() *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "setup-envtest",
		Short: "Build the programs of local control planes into a cache that all projects share",
		Example: `  # Build the programs that all tests need
  setup-envtest programs`,
	})
	cmd.AddCommand(newProgramsCommand(), newBuildCommand())
	cli.AddVersion(cmd)
	return cmd
}

func newProgramsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "programs [PROGRAM...]",
		Short: "Build programs of the control plane, and print their directory",
		Long: `Build programs of the control plane, and print their directory. Programs that the cache already
has are not built again.

Without arguments, build etcd, kube-apiserver, kube-controller-manager, kube-proxy, kubectl,
sample-apiserver, proxy-server and proxy-agent. Tests build the programs that they need. Run the
command to fill the cache before the tests, such as on a CI machine.`,
		Example: `  # Build the programs that all tests need
  setup-envtest programs

  # Build kubectl only
  setup-envtest programs kubectl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, programs []string) error {
			dir, err := controlplane.Fill(cmd.Context(), cmd.ErrOrStderr(), programs...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}

func newBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build FILE PACKAGE",
		Short: "Build a command that starts a control plane, and print the progress",
		Long: `Compile the main package PACKAGE into FILE, as go build does. The first build prints an estimate of
its duration.`,
		Example: `  # Build local-up
  setup-envtest build bin/local-up ./cmd/local-up`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return build(cmd.Context(), args[0], args[1]) },
	}
}
