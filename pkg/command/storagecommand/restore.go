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
		Short: "Make a data directory of a snapshot",
		Long: `Make a data directory of a snapshot: that of a stopped server with an embedded etcd, or
with --etcd-data-dir that of one member of a new external cluster.

A directory that holds an etcd already is refused, and so are one that a server uses and a snapshot
that is damaged.

For an external cluster, run it once for each member, all with the same snapshot, --initial-cluster
and --initial-cluster-token, then start the members, then the servers. Nothing is ever written to a
cluster that runs: its revisions could not be made those of the snapshot.

Revisions are the resource versions of objects. The restored etcd goes on at a much higher one, and
has marked all before as compacted: what clients saw after the snapshot never comes back with
another meaning, and their watches are told to list again (410 Expired).`,
		Example: cli.Named(name, `  # The etcd embedded in a server, which is stopped:
  SERVER storage restore --from=/backup/widgets.db --data-dir=/var/lib/SERVER

  # The member a of an external cluster of three:
  SERVER storage restore --from=/backup/widgets.db --etcd-data-dir=/var/lib/etcd --name=a \
    --initial-advertise-peer-urls=https://10.0.0.5:2380 \
    --initial-cluster=a=https://10.0.0.5:2380,b=https://10.0.0.6:2380,c=https://10.0.0.7:2380`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.DataDir, options.Progress = server.DataDir, cmd.ErrOrStderr()
			problems := options.Validate()
			if options.Member.DataDir != "" && cmd.Flags().Changed("data-dir") {
				problems = append(problems, errors.New("--data-dir and --etcd-data-dir are both set, expected one: "+
					"the server's with an embedded etcd, or a member's of an external cluster"))
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
	flags.StringVar(&options.From, "from", "", "File with the snapshot.")
	addDataDir(flags, server)
	flags.StringVar(&options.Member.DataDir, "etcd-data-dir", "",
		"Data directory of a member of an external cluster, instead of --data-dir.")
	flags.StringVar(&options.Member.Name, "name", "", "With --etcd-data-dir: the name of the member.")
	flags.StringVar(&options.Member.InitialCluster, "initial-cluster", "",
		"With --etcd-data-dir: all members, as NAME=PEER-URL,...")
	flags.StringVar(&options.Member.InitialClusterToken, "initial-cluster-token", "",
		"With --etcd-data-dir: a word of your own instead of etcd-cluster, so that members of another cluster with "+
			"the same addresses are not taken for ours.")
	flags.StringSliceVar(&options.Member.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", nil,
		"With --etcd-data-dir: the peer URLs of the member.")
	flags.Uint64Var(&options.RevisionBump, "bump-revision", storage.DefaultRevisionBump,
		"How many revisions are left out after the last in the snapshot, more than can have been written since it "+
			"was taken; 0 only where no client "+
			"saw a resource version after the snapshot.")
	cli.AddOutputFlag(cmd, &format)
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
	fmt.Fprintf(w, "  %-10s %s\n", "into", r.DataDir)
	fmt.Fprintf(w, "  %-10s %s\n", "member", r.Member)
	fmt.Fprintf(w, "  %-10s %d\n", "goes on at", r.NewRevision)
}
