// SPDX-License-Identifier: Apache-2.0

package storagecommand

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/storage"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newDefragCommand(name string, server *apiserver.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Release the disk space of deleted objects in the etcd",
		Long: `Release the disk space of deleted and compacted keys: rewrite the database of each member, one
after the other, the leader last.

A member does not respond while it rewrites its database, which takes some seconds for each GB. An
embedded etcd has one member, so the server responds to no request that needs the etcd meanwhile.
The command starts only if all members are healthy. --etcd-servers must list all of them.

Regular defragmentation is not necessary, because etcd reuses the space. The command "storage
status" prints the size of the database and the size in use.`,
		Example: cli.Named(name, `  # Defragment the etcd embedded in a local server
  SERVER storage defrag --data-dir=/var/lib/SERVER

  # Defragment an external cluster
  SERVER storage defrag --etcd-servers=https://10.0.0.5:2379,https://10.0.0.6:2379,https://10.0.0.7:2379 \
    --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`),
		Args: cobra.NoArgs,
	}
	runOnStorage(cmd, server, func(cmd *cobra.Command, t storage.Target, format cli.Format) error {
		done, err := t.Defrag(cmd.Context(), cmd.ErrOrStderr())
		// Print the members that were defragmented before an error, too.
		if len(done) == 0 {
			return err
		}
		result := struct {
			Members []storage.Defragmented `json:"members"`
		}{done}
		return errors.Join(err, format.Print(cmd.OutOrStdout(), result,
			func(w io.Writer) { printDefragmented(w, done) }))
	})
	return cmd
}

func printDefragmented(w io.Writer, done []storage.Defragmented) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush() //nolint:errcheck // standard output is gone
	fmt.Fprintln(table, "MEMBER\tLEADER\tBEFORE\tAFTER\tSECONDS\tENDPOINT")
	for _, d := range done {
		fmt.Fprintf(table, "%s\t%v\t%s\t%s\t%.1f\t%s\n", d.Name, d.Leader, storage.BytesText(d.Before),
			storage.BytesText(d.After), d.Seconds, d.Endpoint)
	}
}
