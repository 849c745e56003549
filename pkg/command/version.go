// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/version"
	"example.com/extension-apiserver/pkg/apiserver"
)

func newVersionCommand(api apiserver.API) *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and of its libraries",
		Example: cli.Named(api.Name, "  # Print the version as JSON\n  SERVER version -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return format.Print(cmd.OutOrStdout(), version.Get(modules...), func(w io.Writer) {
				fmt.Fprint(w, versionText(api.Name))
			})
		},
	}
	cli.AddOutputFlag(cmd, &format)
	return cmd
}

// modules are the libraries whose versions are printed.
var modules = []string{"k8s.io/apiserver", "go.etcd.io/etcd/server/v3"}

// addVersionFlag adds the flag --version, which prints the same text as the command version.
func addVersionFlag(root *cobra.Command) {
	root.Version = version.Get().Version
	root.SetVersionTemplate(versionText(root.Name()))
	root.Flags().Bool("version", false, "Print the version and exit.")
}

func versionText(name string) string {
	info := version.Get(modules...)
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s (%s, %s)\n", name, info.Version, info.GoVersion, info.Platform)
	for _, m := range modules {
		if v, linked := info.Libraries[m]; linked {
			fmt.Fprintf(&text, "  %s %s\n", m, v)
		}
	}
	return text.String()
}
