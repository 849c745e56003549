// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/doctor"
)

// newProbeCommand returns the command that runs in the pod of doctor --in-cluster. It is hidden,
// because only the doctor reads its output.
func newProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe SERVERNAME=HOST:PORT...",
		Short:  "Connect to API servers, and print the result of each connection as JSON",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, targets []string) error {
			attempts, err := doctor.Probe(cmd.Context(), targets)
			if err != nil {
				return cli.UsageError(err)
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(attempts)
		},
	}
}
