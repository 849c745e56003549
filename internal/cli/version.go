// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/version"
)

// AddVersion adds the command version and the flag --version to the command of a program. Both
// print the version of the program, and of those of the modules that it contains.
func AddVersion(root *cobra.Command, modules ...string) {
	AddVersionFlag(root, modules...)
	var format Format
	name := root.CommandPath()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: fmt.Sprintf("  # Print the version\n  %s version\n\n  # Print the version as JSON\n  %[1]s version -o json",
			name),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return format.Print(cmd.OutOrStdout(), version.Get(modules...),
				func(w io.Writer) { fmt.Fprint(w, root.Version) })
		},
	}
	AddOutputFlag(cmd, &format)
	root.AddCommand(cmd)
}

// AddVersionFlag adds only the flag --version. The field Version of the command then has the
// printed text.
func AddVersionFlag(root *cobra.Command, modules ...string) {
	root.Version = versionText(root.Name(), modules)
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "Print the version and exit.")
}

func versionText(name string, modules []string) string {
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
