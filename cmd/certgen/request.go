// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
)

func newRequestCommand(env environment) *cobra.Command {
	opts := certs.InitOptions{Now: env.now}
	var configFile string
	names, issue := nameFlags(&opts), issueFlags(&opts)
	cmd := &cobra.Command{
		Use:   "request NAME --dir DIR --service NAME --namespace NAMESPACE",
		Short: "Ask a CA whose key is elsewhere for a certificate",
		Long: `Make a new key and a certificate request (PKCS#10) for the leaf in DIR/NAME, where NAME is
one of the directories that certgen init --help lists, such as serving.

Key and request wait in DIR/NAME/pending; what is in use stays as it is. Have
DIR/NAME/pending/tls.csr signed, with certgen request sign or by any CA that adds nothing of its
own, and hand the certificate to certgen request accept. Run again, it keeps a pending request that
still asks for the right thing and replaces any other.`,
		Example: `  certgen request serving --dir edge --service widgets --namespace demo`,
		Args:    oneOf(certs.Leaves()),
		RunE: func(cmd *cobra.Command, args []string) error {
			fromFile, err := readConfig(configFile, names, issue)
			if err != nil {
				return err
			}
			return env.show(func() (*certs.Report, error) {
				report, err := certs.Request(cmd.Context(), opts, args[0])
				return report, fromFile.locate(err)
			})
		},
	}
	cmd.AddCommand(newSignCommand(env), newAcceptCommand(env))
	cmd.Flags().AddFlagSet(names)
	addConfigFlag(cmd, &configFile)
	return cmd
}

func newAcceptCommand(env environment) *cobra.Command {
	opts := certs.AcceptOptions{Now: env.now}
	cmd := &cobra.Command{
		Use:   "accept NAME --dir DIR --cert FILE",
		Short: "Put a certificate in use that was asked for with certgen request",
		Long: `Check a certificate that was signed for the request in DIR/NAME/pending, and put it in use
with its key and its CA, in one step. It must have the key and the names that were asked for, one
usage, and nothing else; it must come from the CA, which is given with --ca the first time and then
stays in its directory, without its key. Each difference is reported, and then nothing changes.`,
		Example: `  certgen request accept serving --dir edge --cert serving.crt --ca pki/serving-ca/tls.crt`,
		Args:    oneOf(certs.Leaves()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = args[0]
			if err := certs.Require("cert", opts.CertFile, "the file of the certificate"); err != nil {
				return err
			}
			return env.show(func() (*certs.Report, error) { return certs.Accept(cmd.Context(), opts) })
		},
	}
	cmd.Flags().StringVar(&opts.Dir, dirFlag, "", "directory in which certgen request was run (required)")
	cmd.Flags().StringVar(&opts.CertFile, "cert", "", "the certificate, PEM (required)")
	cmd.Flags().StringVar(&opts.CAFile, "ca", "", "the certificate of its CA, PEM; needed where it is not in DIR yet")
	cmd.Flags().BoolVar(&opts.AllowLongLived, "allow-long-lived", false,
		"accept a certificate that lasts longer than 398 days")
	return cmd
}

func newSignCommand(env environment) *cobra.Command {
	opts := certs.SignOptions{Now: env.now}
	cmd := &cobra.Command{
		Use:   "sign REQUEST --ca PATH --out FILE",
		Short: "Sign somebody's certificate request with a CA",
		Long: `Sign the key in a certificate request (PKCS#10). Nothing but the key is taken from it:
names and usage are those of the flags, --dns and --ip for a server, --user and --group for a
client. A request that asks for anything else is refused; what it leaves out is filled in.`,
		Example: `  certgen request sign edge/serving/pending/tls.csr --ca pki/serving-ca --out serving.crt \
    --dns widgets.demo.svc,widgets.demo,widgets,widgets.demo.svc.cluster.local`,
		Args: oneArgument("one certificate request"),
		RunE: func(_ *cobra.Command, args []string) error {
			opts.RequestFile = args[0]
			return env.show(func() (*certs.Report, error) { return certs.SignRequest(opts) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.CA, "ca", "",
		"the CA: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key beside it (required)")
	flags.StringVar(&opts.Out, "out", "", "file for the certificate; one that is there is never overwritten (required)")
	flags.Var((*commaList)(&opts.DNSNames), "dns", "DNS names of a server, with commas or repeated")
	flags.Var((*commaList)(&opts.IPs), "ip", "IP addresses of a server, with commas or repeated")
	clientFlags(flags, &opts.User, &opts.Groups, &opts.AllowSystemMasters)
	lifetimeFlags(flags, &opts.Lifetime, &opts.AllowLongLived)
	return cmd
}
