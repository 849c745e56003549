// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"example.com/extension-apiserver/internal/usage"
	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/storage"
)

func newStorageCommand(api apiserver.API) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Back up, restore, defragment and look at the etcd of the server",
		Long: `Back up, restore, defragment and look at the etcd that the server stores its objects in.

The flags that say where it is are those of serve: --data-dir for the etcd embedded in a server, --etcd-servers and the files of
its client's TLS for an external cluster. The embedded etcd listens on a socket in the data directory only, so run the commands
as the user of the server and on its machine or in its container.`,
		Args: usage.NoCommand,
		// The library for the server's storage has gRPC log each connection that it gives up; here the errors say it.
		PersistentPreRun: func(*cobra.Command, []string) {
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newSnapshotCommand(api), newRestoreCommand(api), newDefragCommand(api), newStatusCommand(api))
	return cmd
}

// addStorageFlags adds those of the server that say where its storage is. The function returned reads them.
func addStorageFlags(cmd *cobra.Command, api apiserver.API) func() (storage.Target, error) {
	options := apiserver.NewOptions(api)
	cmd.Flags().AddFlagSet(options.StorageFlags())
	return func() (storage.Target, error) {
		target, problems := options.StorageTarget()
		if len(problems) > 0 {
			return target, &usage.Error{Problems: problems}
		}
		return target, nil
	}
}
