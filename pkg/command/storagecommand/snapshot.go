// SPDX-License-Identifier: Apache-2.0

package storagecommand

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/storage"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newSnapshotCommand(name string, server *apiserver.Options) *cobra.Command {
	var options storage.SnapshotOptions
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save a snapshot of the running etcd to a file",
		Long: `Save a snapshot of the running etcd to a file. The server continues to serve requests.

The file gets its name after it is written to disk and verified. Until then it is in a temporary
directory beside the target. The format is that of etcdctl and etcdutl. The snapshot contains the
whole etcd, including keys of other applications, and is not encrypted: protect it like the etcd.
The command reads it from the healthy member with the highest revision.`,
		Example: cli.Named(name, `  # Save the etcd embedded in a local server
  SERVER storage snapshot --data-dir=/var/lib/SERVER --out=/backup/widgets.db

  # Save an external etcd
  SERVER storage snapshot --etcd-servers=https://10.0.0.5:2379,https://10.0.0.6:2379 \
    --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key --out=/backup/widgets.db -o json`),
		Args: cobra.NoArgs,
	}
	runOnStorage(cmd, server, func(cmd *cobra.Command, t storage.Target, format cli.Format) error {
		if options.Out == "" {
			return cli.UsageErrorf("--out is required")
		}
		options.Progress = cmd.ErrOrStderr()
		result, err := t.Snapshot(cmd.Context(), options)
		if err != nil {
			return err
		}
		return format.Print(cmd.OutOrStdout(), result, func(w io.Writer) { printSnapshot(w, result) })
	})
	cmd.Flags().StringVar(&options.Out, "out", "", "File to write, with mode 0600. Required.")
	cmd.Flags().BoolVar(&options.Force, "force", false, "Replace an existing file.")
	cli.MarkRequired(cmd, "out")
	return cmd
}

func printSnapshot(w io.Writer, s *storage.Snapshot) {
	fmt.Fprintf(w, "Saved %s\n", s.Path)
	printFile(w, s.File)
	fmt.Fprintf(w, "  %-12s %d keys with the prefix %s\n", "objects", s.Objects, s.Prefix)
	fmt.Fprintf(w, "  %-12s %s\n", "endpoint", s.Endpoint)
	if s.Version != "" {
		fmt.Fprintf(w, "  %-12s %s\n", "etcd", s.Version)
	}
}

func printFile(w io.Writer, f storage.File) {
	fmt.Fprintf(w, "  %-12s %d\n", "revision", f.Revision)
	fmt.Fprintf(w, "  %-12s %d\n", "keys", f.Keys)
	fmt.Fprintf(w, "  %-12s %s (%d bytes)\n", "size", storage.BytesText(f.Size), f.Size)
	fmt.Fprintf(w, "  %-12s %s\n", "sha256", f.SHA256)
}
