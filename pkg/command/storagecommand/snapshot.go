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
		Short: "Save the state of the running etcd to a file",
		Long: `Save the state of the running etcd, at one revision, to a file. The server goes on
meanwhile.

The file appears under its name when it is whole, on the disk and verified; until then it is in a
directory beside it. It has the format of etcdctl and etcdutl. It holds the whole etcd, also what
others store there, and all of it in the clear: keep it as you keep the etcd. The snapshot comes
from the member that has applied the most.`,
		Example: cli.Named(name, `  # The etcd embedded in the server that runs here:
  SERVER storage snapshot --data-dir=/var/lib/SERVER --out=/backup/widgets.db

  # An external etcd:
  SERVER storage snapshot --etcd-servers=https://10.0.0.5:2379,https://10.0.0.6:2379 \
    --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key --out=/backup/widgets.db -o json`),
		Args: cobra.NoArgs,
	}
	runOnStorage(cmd, server, func(cmd *cobra.Command, t storage.Target, format cli.Format) error {
		if options.Out == "" {
			return cli.UsageErrorf("--out is not set, expected the file to write")
		}
		options.Progress = cmd.ErrOrStderr()
		result, err := t.Snapshot(cmd.Context(), options)
		if err != nil {
			return err
		}
		return format.Print(cmd.OutOrStdout(), result, func(w io.Writer) { printSnapshot(w, result) })
	})
	cmd.Flags().StringVar(&options.Out, "out", "", "File to write, with mode 0600.")
	cmd.Flags().BoolVar(&options.Force, "force", false, "Replace the file if it exists.")
	return cmd
}

func printSnapshot(w io.Writer, s *storage.Snapshot) {
	fmt.Fprintf(w, "Saved %s\n", s.Path)
	printFile(w, s.File)
	fmt.Fprintf(w, "  %-10s %d keys with the prefix %s\n", "objects", s.Objects, s.Prefix)
	fmt.Fprintf(w, "  %-10s %s\n", "from", s.Endpoint)
	if s.Version != "" {
		fmt.Fprintf(w, "  %-10s %s\n", "etcd", s.Version)
	}
}

func printFile(w io.Writer, f storage.File) {
	fmt.Fprintf(w, "  %-10s %d\n", "revision", f.Revision)
	fmt.Fprintf(w, "  %-10s %d\n", "keys", f.Keys)
	fmt.Fprintf(w, "  %-10s %s (%d bytes)\n", "size", storage.BytesText(f.Size), f.Size)
	fmt.Fprintf(w, "  %-10s %s\n", "sha256", f.SHA256)
}
