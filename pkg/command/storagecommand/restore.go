// SPDX-License-Identifier: Apache-2.0

package storagecommand

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/storage"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newRestoreCommand(name string, server *apiserver.Options) *cobra.Command {
	options := storage.RestoreOptions{}
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Create an etcd data directory from a snapshot",
		Long: `Create an etcd data directory from a snapshot: the data directory of a stopped server with an
embedded etcd, or with --etcd-data-dir that of one member of a new external cluster.

The command refuses a directory that already contains an etcd, a directory that a server uses, and
a damaged snapshot.

To restore an external cluster, run the command once for each member, with the same snapshot,
--initial-cluster and --initial-cluster-token. Then start the members, and then the servers. The
command never writes to a running cluster.

The revisions of etcd are the resource versions of objects. The restored etcd continues at a much
higher revision, and marks all earlier revisions as compacted. No resource version that a client
saw after the snapshot is used again, and watches from an older one get the error 410 Expired, so
that clients list again.`,
		Example: cli.Named(name, `  # Restore the etcd embedded in a stopped server
  SERVER storage restore --from=/backup/widgets.db --data-dir=/var/lib/SERVER

  # Restore the member a of an external cluster with three members
  SERVER storage restore --from=/backup/widgets.db --etcd-data-dir=/var/lib/etcd --name=a \
    --initial-advertise-peer-urls=https://10.0.0.5:2380 \
    --initial-cluster=a=https://10.0.0.5:2380,b=https://10.0.0.6:2380,c=https://10.0.0.7:2380`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.DataDir, options.Progress = server.DataDir, cmd.ErrOrStderr()
			problems := options.Validate()
			if options.Member.DataDir != "" && cmd.Flags().Changed("data-dir") {
				problems = append(problems, errors.New("--data-dir and --etcd-data-dir exclude each other: "+
					"set one for an embedded etcd, or for a member of an external cluster"))
			}
			if len(problems) > 0 {
				return cli.UsageError(problems...)
			}
			result, err := storage.Restore(options)
			if err != nil {
				return err
			}
			return format.Print(cmd.OutOrStdout(), result, func(w io.Writer) { printRestored(w, result) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.From, "from", "", "File with the snapshot. Required.")
	addDataDir(flags, server)
	flags.StringVar(&options.Member.DataDir, "etcd-data-dir", "",
		"Data directory of a member of a new external cluster. Excludes --data-dir.")
	flags.StringVar(&options.Member.Name, "name", "", "Name of the member. Required with --etcd-data-dir.")
	flags.StringVar(&options.Member.InitialCluster, "initial-cluster", "",
		"All members of the new cluster, as NAME=PEER-URL,... Required with --etcd-data-dir.")
	flags.StringVar(&options.Member.InitialClusterToken, "initial-cluster-token", "",
		"Token of the new cluster, which keeps members of other clusters with the same addresses out. "+
			"Used with --etcd-data-dir. The default is etcd-cluster.")
	flags.StringSliceVar(&options.Member.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", nil,
		"Peer URLs of the member, as in --initial-cluster. Required with --etcd-data-dir.")
	flags.Uint64Var(&options.RevisionBump, "bump-revision", storage.DefaultRevisionBump,
		"Number of revisions to skip after the last one of the snapshot. It must exceed the number of writes since the "+
			"snapshot. Use 0 only if no client saw a resource version after the snapshot.")
	cli.AddOutputFlag(cmd, &format)
	cli.MarkRequired(cmd, "from")
	return cmd
}

// addDataDir adds the flag --data-dir of the server. Without an embedded etcd, the server has no
// data directory and no such flag.
func addDataDir(flags *pflag.FlagSet, server *apiserver.Options) {
	if dataDir := server.StorageFlags().Lookup("data-dir"); dataDir != nil {
		flags.AddFlag(dataDir)
		return
	}
	server.DataDir = ""
}

func printRestored(w io.Writer, r *storage.Restored) {
	fmt.Fprintf(w, "Restored %s\n", r.Path)
	printFile(w, r.File)
	fmt.Fprintf(w, "  %-12s %s\n", "directory", r.DataDir)
	fmt.Fprintf(w, "  %-12s %s\n", "member", r.Member)
	fmt.Fprintf(w, "  %-12s %d\n", "new revision", r.NewRevision)
}
