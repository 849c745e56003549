// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/cmd/internal/usage"
	"example.com/extension-apiserver/pkg/version"
)

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and of the libraries in it",
		Example: "  extension-apiserver version\n  extension-apiserver version -o json",
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modules := []string{"k8s.io/apiserver", "go.etcd.io/etcd/server/v3"}
			info := version.Get(modules...)
			switch output {
			case "json":
				out, err := json.MarshalIndent(info, "", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), string(out))
			case "text":
				fmt.Fprintf(cmd.OutOrStdout(), "extension-apiserver %s (%s, %s)\n", info.Version, info.GoVersion, info.Platform)
				for _, m := range modules {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s %s\n", m, info.Libraries[m])
				}
			default:
				return usage.Errorf("--output is %q, expected text or json", output)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "Format: text or json.")
	return cmd
}
