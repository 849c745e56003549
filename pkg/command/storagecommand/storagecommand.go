// SPDX-License-Identifier: Apache-2.0

// Package storagecommand provides the command that operates the etcd of a server. It links the
// server of etcd, whose code creates a data directory from a snapshot.
package storagecommand

import (
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/storage"
	"example.com/extension-apiserver/pkg/apiserver"
)

// New returns the command, for command.Run; or nil if no kind of the API is stored in etcd.
func New(api apiserver.API) (*cobra.Command, error) {
	options, err := apiserver.NewOptions(api)
	if err != nil {
		return nil, err
	}
	if !options.HasStorage() {
		return nil, nil //nolint:nilnil // the server has no such command
	}
	cmd := cli.Group(&cobra.Command{
		Use:   "storage",
		Short: "Back up, restore and maintain the etcd of the server",
		Long: `Back up, restore, defragment and inspect the etcd in which the server stores its objects.

The flags that locate the etcd are those of serve: --data-dir for an embedded etcd, --etcd-servers
and the TLS files for an external cluster. An embedded etcd listens only on a socket in the data
directory. Run the commands as the user of the server, on the same machine or in the same
container.`,
		Example: cli.Named(api.Name, `  # Save a snapshot of the etcd embedded in a local server
  SERVER storage snapshot --data-dir=/var/lib/SERVER --out=/backup/widgets.db

  # Restore it into the data directory of a stopped server
  SERVER storage restore --from=/backup/widgets.db --data-dir=/var/lib/SERVER`),
		// The server's storage library makes gRPC log each failed connection. Here the errors
		// report them.
		PersistentPreRun: func(*cobra.Command, []string) {
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
		},
	})
	cmd.AddCommand(newSnapshotCommand(api.Name, options), newRestoreCommand(api.Name, options),
		newDefragCommand(api.Name, options), newStatusCommand(api.Name, options))
	return cmd, nil
}

// runOnStorage adds the flags that locate the storage of a server and the output format flag to
// the command, and sets its RunE to validate them and call run.
func runOnStorage(cmd *cobra.Command, options *apiserver.Options,
	run func(*cobra.Command, storage.Target, cli.Format) error) {
	var format cli.Format
	cmd.Flags().AddFlagSet(options.StorageFlags())
	cli.AddOutputFlag(cmd, &format)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if problems := options.ValidateStorage(); len(problems) > 0 {
			return cli.UsageError(problems...)
		}
		etcd := options.Etcd.StorageConfig
		return run(cmd, storage.Target{DataDir: options.DataDir, Transport: etcd.Transport, Prefix: etcd.Prefix},
			format)
	}
}
