// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newInspectCommand(env environment) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "inspect PATH...",
		Short: "Print what certificates say, and what is wrong with them",
		Long: `Print the certificates in files and directories: names, usages, validity, issuer, fingerprint, chain, and whether
the key beside a certificate is its own. Keys are read for that and never shown.

In a directory, and all below it, files named *.crt, *.cert, *.cer, *.pem and *.key are read. Chains are made from all
certificates seen, and from ca.crt beside each file.

The exit code is 1 when a certificate has expired or has not begun, a key does not match or a file cannot be read. CAs in
directories *.old-TIME, into which replaced ones are moved, may have expired.`,
		Example: `  certgen inspect pki
  certgen inspect /etc/kubernetes/pki/front-proxy-client.crt
  certgen inspect pki -o json | jq '.files[].certificates[]? | {subject, daysLeft}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("expected files or directories to inspect, found none; give at least one, such as ./pki")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, paths []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			result, err := certs.Inspect(paths, env.now())
			if err != nil {
				return err
			}
			if err := format.Print(env.stdout, result, func(w io.Writer) { printInspection(w, result) }); err != nil {
				return err
			}
			var findings []error
			for _, f := range result.Files {
				for _, finding := range f.Findings {
					findings = append(findings, errors.New(f.Path+": "+finding))
				}
			}
			return errors.Join(findings...)
		},
	}
	output.AddFlag(cmd, &format)
	return cmd
}
