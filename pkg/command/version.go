// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/version"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newVersionCommand(api apiserver.API) *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and of the libraries in it",
		Example: cli.Named(api.Name, "  SERVER version\n  SERVER version -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modules := []string{"k8s.io/apiserver", "go.etcd.io/etcd/server/v3"}
			info := version.Get(modules...)
			return format.Print(cmd.OutOrStdout(), info, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s (%s, %s)\n", api.Name, info.Version, info.GoVersion, info.Platform)
				for _, m := range modules {
					if v, linked := info.Libraries[m]; linked {
						fmt.Fprintf(w, "  %s %s\n", m, v)
					}
				}
			})
		},
	}
	cli.AddOutputFlag(cmd, &format)
	return cmd
}
