// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newRequestCommand(env environment) *cobra.Command {
	opts := certs.InitOptions{Now: env.now}
	var format output.Format
	var configFile string
	names, issue := nameFlags(&opts), issueFlags(&opts)
	cmd := &cobra.Command{
		Use:   "request NAME --dir DIR --service NAME --namespace NAMESPACE",
		Short: "Ask a CA whose key is elsewhere for a certificate",
		Long: `Make a new key and a certificate request (PKCS#10) for the leaf in DIR/NAME, where NAME is one of the directories that
certgen init --help lists, such as serving.

Key and request wait in DIR/NAME/pending; what is in use stays as it is. Have DIR/NAME/pending/tls.csr signed, with
certgen request sign or by any CA that adds nothing of its own, and hand the certificate to certgen request accept. Run again, it keeps a
pending request that still asks for the right thing and replaces any other.`,
		Example: `  certgen request serving --dir edge --service widgets --namespace demo`,
		Args:    oneLeaf,
		RunE: func(cmd *cobra.Command, args []string) error {
			fromFile, err := readConfig(configFile, names, issue)
			if err := errors.Join(format.Validate(), err); err != nil {
				return err
			}
			report, err := certs.Request(cmd.Context(), opts, args[0])
			return show(env, format, report, fromFile.locate(err), printRequest)
		},
	}
	cmd.AddCommand(newSignCommand(env), newAcceptCommand(env))
	cmd.Flags().AddFlagSet(names)
	addConfigFlag(cmd, &configFile)
	output.AddFlag(cmd, &format)
	return cmd
}

func newAcceptCommand(env environment) *cobra.Command {
	opts := certs.AcceptOptions{Now: env.now}
	var format output.Format
	cmd := &cobra.Command{
		Use:   "accept NAME --dir DIR --cert FILE",
		Short: "Put a certificate in use that was asked for with certgen request",
		Long: `Check a certificate that was signed for the request in DIR/NAME/pending, and put it in use with its key and its CA, in
one step. It must have the key and the names that were asked for, one usage, and nothing else; it must come from the CA,
which is given with --ca the first time and then stays in its directory, without its key. Each difference is reported,
and then nothing changes.`,
		Example: `  certgen request accept serving --dir edge --cert serving.crt --ca pki/serving-ca/tls.crt`,
		Args:    oneLeaf,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = args[0]
			if opts.CertFile == "" {
				return &certs.InvalidError{Field: "cert", Reason: "expected the file of the certificate"}
			}
			if err := format.Validate(); err != nil {
				return err
			}
			report, err := certs.Accept(cmd.Context(), opts)
			return show(env, format, report, err, printIssued)
		},
	}
	cmd.Flags().StringVar(&opts.Dir, "dir", "", "directory in which certgen request was run (required)")
	cmd.Flags().StringVar(&opts.CertFile, "cert", "", "the certificate, PEM (required)")
	cmd.Flags().StringVar(&opts.CAFile, "ca", "", "the certificate of its CA, PEM; needed where it is not in DIR yet")
	cmd.Flags().BoolVar(&opts.AllowLongLived, "allow-long-lived", false, "accept a certificate that lasts longer than 398 days")
	output.AddFlag(cmd, &format)
	return cmd
}

// oneLeaf wants the directory of one leaf.
func oneLeaf(_ *cobra.Command, args []string) error {
	known := certs.Leaves()
	if len(args) != 1 || !slices.Contains(known, args[0]) {
		return usage.Errorf("expected one of %s, found %q", strings.Join(known, ", "), args)
	}
	return nil
}
