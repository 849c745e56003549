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
		Short: "Give back the disk space that deleted objects left in the etcd",
		Long: `Rewrite the database of each member without the space that deleted and compacted keys left:
one member after the other, the leader last.

A member answers nothing while its database is rewritten, and an embedded etcd has one member: its
server answers no reads or writes that need the etcd, some seconds for each GB. Unless all members
are healthy nothing is begun. --etcd-servers must name all of them.

It is not needed regularly: etcd fills the space again. See --help of "storage status" for how much
there is.`,
		Example: cli.Named(name, `  SERVER storage defrag --data-dir=/var/lib/SERVER
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
	defer table.Flush() //nolint:errcheck // there is nobody left to tell
	fmt.Fprintln(table, "MEMBER\tLEADER\tBEFORE\tAFTER\tSECONDS\tENDPOINT")
	for _, d := range done {
		fmt.Fprintf(table, "%s\t%v\t%s\t%s\t%.1f\t%s\n", d.Name, d.Leader, storage.BytesText(d.Before),
			storage.BytesText(d.After), d.Seconds, d.Endpoint)
	}
}
