// SPDX-License-Identifier: Apache-2.0

package storagecommand

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/storage"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newStatusCommand(name string, server *apiserver.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the members of the etcd",
		Long: `Print the members of the etcd, with version, size, revision, alarms and health.

  SIZE    size of the database on disk
  IN USE  size without the space of deleted and compacted keys
  QUOTA   size at which etcd rejects writes and raises the alarm NOSPACE
  HEALTH  healthy, unhealthy, or unknown for a member that is not among --etcd-servers`,
		Example: cli.Named(name, `  # Print the state of the etcd embedded in a local server
  SERVER storage status --data-dir=/var/lib/SERVER

  # Print the database sizes of an external cluster
  SERVER storage status --etcd-servers=https://10.0.0.5:2379,https://10.0.0.6:2379,https://10.0.0.7:2379 \
    --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key -o json | jq '.members[] | {name, sizeBytes}'`),
		Args: cobra.NoArgs,
	}
	runOnStorage(cmd, server, func(cmd *cobra.Command, t storage.Target, format cli.Format) error {
		status, err := t.Status(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(format.Print(cmd.OutOrStdout(), status, func(w io.Writer) { printStatus(w, status) }),
			status.Problems())
	})
	return cmd
}

func printStatus(w io.Writer, s *storage.Status) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush() //nolint:errcheck // standard output is gone
	fmt.Fprintln(table, "MEMBER\tID\tROLE\tVERSION\tSIZE\tIN USE\tQUOTA\tREVISION\tALARMS\tHEALTH\tENDPOINT")
	for _, m := range s.Members {
		role := "follower"
		switch {
		case m.Version == "":
			role = "-"
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", cmp.Or(m.Name, "-"), cmp.Or(m.ID, "-"), role,
			cmp.Or(m.Version, "-"),
			storage.BytesText(m.Size), storage.BytesText(m.InUse), storage.BytesText(m.Quota), m.Revision,
			cmp.Or(strings.Join(m.Alarms, ","), "-"), m.Health, cmp.Or(m.Endpoint, "-"))
	}
}
