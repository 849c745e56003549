// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newSignCommand(env environment) *cobra.Command {
	opts := certs.SignOptions{Now: env.now}
	var format output.Format
	cmd := &cobra.Command{
		Use:   "sign REQUEST --ca PATH --out FILE",
		Short: "Sign somebody's certificate request with a CA",
		Long: `Sign the key in a certificate request (PKCS#10). Nothing but the key is taken from it: names and usage are those of the
flags, --dns and --ip for a server, --user and --group for a client. A request that asks for anything else is refused;
what it leaves out is filled in.`,
		Example: `  certgen request sign edge/serving/pending/tls.csr --ca pki/serving-ca --out serving.crt \
    --dns widgets.demo.svc,widgets.demo,widgets,widgets.demo.svc.cluster.local`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("expected one certificate request, found %q", args)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			opts.RequestFile = args[0]
			if err := format.Validate(); err != nil {
				return err
			}
			report, err := certs.SignRequest(opts)
			return show(env, format, report, err, printIssued)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.CA, "ca", "", "the CA: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key beside it (required)")
	flags.StringVar(&opts.Out, "out", "", "file for the certificate; one that is there is never overwritten (required)")
	flags.Var((*commaList)(&opts.DNSNames), "dns", "DNS names of a server, with commas or repeated")
	flags.Var((*commaList)(&opts.IPs), "ip", "IP addresses of a server, with commas or repeated")
	clientFlags(flags, &opts.User, &opts.Groups, &opts.AllowSystemMasters)
	lifetimeFlags(flags, &opts.Lifetime, &opts.AllowLongLived)
	output.AddFlag(cmd, &format)
	return cmd
}
