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
		Short: "Print members, leader, versions, sizes, revision, alarms and health of the etcd",
		Long: `Print members, leader, versions, sizes, revision, alarms and health of the etcd.

SIZE is that of the database on disk, IN USE what is left of it without the space of deleted and
compacted keys, QUOTA the size at which etcd refuses writes and raises the alarm NOSPACE. A member
that no endpoint leads to has the health "unknown".

The exit code is 1 when a member is unhealthy: it does not answer, cannot read, or has an alarm.`,
		Example: cli.Named(name, `  SERVER storage status --data-dir=/var/lib/SERVER
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
	defer table.Flush() //nolint:errcheck // there is nobody left to tell
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
