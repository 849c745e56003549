// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
)

func newRequestCommand(env environment) *cobra.Command {
	opts := certs.InitOptions{Now: env.now}
	var configFile string
	names, issue := nameFlags(&opts), issueFlags(&opts)
	cmd := &cobra.Command{
		Use:   "request NAME --dir DIR --service NAME --namespace NAMESPACE",
		Short: "Create a certificate request for a CA whose key is stored elsewhere",
		Long: `Create a key and a certificate request (PKCS#10) for the certificate in DIR/NAME. NAME is one of
the directories that certgen init --help lists, such as serving.

certgen stores key and request in DIR/NAME/pending; the certificate in use does not change. Let a
CA sign DIR/NAME/pending/tls.csr, with certgen request sign or another tool that adds no names,
usages or extensions. Then run certgen request accept with the signed certificate. If you run the
command again, certgen keeps a pending request that still matches the flags, and replaces any
other.`,
		Example: `  # Create a request for the serving certificate of the Service demo/widgets
  certgen request serving --dir edge --service widgets --namespace demo`,
		Args: oneOf(certs.Leaves()),
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
		Short: "Install the signed certificate of certgen request",
		Long: `Verify a certificate that a CA signed for the request in DIR/NAME/pending, and install it in
DIR/NAME together with its key and its CA, in one step.

The certificate must match the request: key, names, one usage and no other extensions. The CA in
--ca must have signed it. certgen stores the CA's certificate, so later certificates of the same
CA do not need --ca. If the certificate differs from the request, certgen reports each difference
and changes nothing.`,
		Example: `  # Install the signed serving certificate
  certgen request accept serving --dir edge --cert serving.crt --ca pki/serving-ca/tls.crt`,
		Args: oneOf(certs.Leaves()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = args[0]
			if err := certs.Require("cert", opts.CertFile, "the file of the certificate"); err != nil {
				return err
			}
			return env.show(func() (*certs.Report, error) { return certs.Accept(cmd.Context(), opts) })
		},
	}
	cmd.Flags().StringVar(&opts.Dir, dirFlag, "", "Directory of certgen request. Required.")
	cmd.Flags().StringVar(&opts.CertFile, "cert", "", "File with the signed certificate, in PEM. Required.")
	cmd.Flags().StringVar(&opts.CAFile, "ca", "",
		"File with the certificate of the CA, in PEM. Required if --dir does not contain it yet.")
	cmd.Flags().BoolVar(&opts.AllowLongLived, "allow-long-lived", false,
		"Allow a certificate with a lifetime of more than 398 days.")
	cli.MarkRequired(cmd, dirFlag, "cert")
	return cmd
}

func newSignCommand(env environment) *cobra.Command {
	opts := certs.SignOptions{Now: env.now}
	cmd := &cobra.Command{
		Use:   "sign REQUEST --ca PATH --out FILE",
		Short: "Sign a certificate request with a CA",
		Long: `Sign the key in a certificate request (PKCS#10). Names and usage of the certificate come from the
flags only: --dns and --ip for a server, --user and --group for a client. certgen refuses a
request that contains anything that the flags do not grant. The request can contain less.`,
		Example: `  # Sign the serving certificate that another directory requests
  certgen request sign edge/serving/pending/tls.csr --ca pki/serving-ca --out serving.crt \
    --dns widgets.demo.svc,widgets.demo,widgets,widgets.demo.svc.cluster.local`,
		Args: oneArgument("one certificate request"),
		RunE: func(_ *cobra.Command, args []string) error {
			opts.RequestFile = args[0]
			return env.show(func() (*certs.Report, error) { return certs.SignRequest(opts) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.CA, "ca", "",
		"CA that signs: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key in the same directory. "+
			"Required.")
	flags.StringVar(&opts.Out, "out", "", "File for the certificate. certgen never overwrites an existing file. Required.")
	flags.Var((*commaList)(&opts.DNSNames), "dns", "DNS names of a server, comma-separated or repeated.")
	flags.Var((*commaList)(&opts.IPs), "ip", "IP addresses of a server, comma-separated or repeated.")
	clientFlags(flags, &opts.User, &opts.Groups, &opts.AllowSystemMasters, "")
	lifetimeFlags(flags, &opts.Lifetime, &opts.AllowLongLived)
	cli.MarkRequired(cmd, "ca", "out")
	return cmd
}
