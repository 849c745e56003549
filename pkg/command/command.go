// SPDX-License-Identifier: Apache-2.0

// Package command provides the command line of a server: the command serve and the commands that
// operate the server.
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

// Run executes the command line of the process for a server of the API and returns the exit code.
// more adds commands to serve, apiservices, roles and version. The exit codes are:
//
//   - 0 on success.
//   - 1 if the server cannot start, or stops because of an error.
//   - 2 if the command line is invalid. Run prints each error and starts nothing.
//
// Run writes the log to standard error, and at the end the error, if any.
func Run(api apiserver.API, more ...Subcommand) int {
	return run(genericapiserver.SetupSignalContext(), api, more, os.Args[1:], os.Stderr)
}

// Subcommand creates a command for a server of the API, like storagecommand.New. It returns nil if
// the command does not apply to the API.
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
		Example: cli.Named(api.Name, `  # Serve the API in a pod
  SERVER serve --tls-cert-file=/certs/tls.crt --tls-private-key-file=/certs/tls.key

  # Register the API with kube-apiserver
  SERVER apiservices --service SERVER --namespace SERVER --ca-file pki/serving-ca/tls.crt |
    kubectl apply -f -`),
	}
	cli.AddVersion(root, "k8s.io/apiserver", "go.etcd.io/etcd/server/v3")
	root.AddCommand(newServeCommand(api, options), newAPIServicesCommand(api), newRolesCommand(api))
	for _, newCommand := range more {
		cmd, err := newCommand(api)
		if err != nil {
			return nil, err
		}
		if cmd != nil {
			root.AddCommand(cmd)
		}
	}
	return root, nil
}
