// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of a server: serve, and what operates it.
package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/pkg/apiserver"
)

// Run executes the command line of the process, for a server of the API, with more commands beside serve, apiservices
// and version, and returns its exit code:
//
//   - 0 when all is well;
//   - 1 when the server could not start or stopped by an error;
//   - 2 when the command line is wrong: each cause is printed, and nothing was started.
//
// What it prints on standard error is the log, and at the end the reason if it failed.
func Run(api apiserver.API, more ...Subcommand) int {
	return run(genericapiserver.SetupSignalContext(), api, more, os.Args[1:], os.Stderr)
}

// Subcommand makes a command for a server of the API. storagecommand.New is one.
type Subcommand func(apiserver.API) (*cobra.Command, error)

func run(ctx context.Context, api apiserver.API, more []Subcommand, args []string, stderr io.Writer) int {
	root, err := newRootCommand(api, more)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", api.Name, err)
		return 1
	}
	root.SetArgs(args)
	root.SetErr(stderr)
	return cli.Run(ctx, root)
}

func newRootCommand(api apiserver.API, more []Subcommand) (*cobra.Command, error) {
	options, err := apiserver.NewOptions(api)
	if err != nil {
		return nil, err
	}
	root := &cobra.Command{
		Use:   api.Name,
		Short: "Run and operate an API server behind the aggregation layer of kube-apiserver",
	}
	addVersionFlag(root)
	root.AddCommand(newServeCommand(api, options), newAPIServicesCommand(api), newRolesCommand(api),
		newVersionCommand(api))
	for _, newCommand := range more {
		cmd, err := newCommand(api)
		if err != nil {
			return nil, err
		}
		root.AddCommand(cmd)
	}
	return root, nil
}
