// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
	"example.com/extension-apiserver/internal/version"
)

const signerModule = "github.com/cloudflare/cfssl"

func newVersionCommand(env environment) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of certgen, Go and cfssl",
		Args:  usage.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			info := version.Get(signerModule)
			return format.Print(env.stdout, info, func(w io.Writer) {
				fmt.Fprintf(w, "certgen %s, %s, cfssl %s, %s\n", info.Version, info.GoVersion, info.Libraries[signerModule], info.Platform)
			})
		},
	}
	output.AddFlag(cmd, &format)
	return cmd
}
