// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
)

func newInitCommand(env environment) *cobra.Command {
	opts := certs.InitOptions{Now: env.now}
	var configFile string
	var signer signerFiles
	names, issue := nameFlags(&opts), issueFlags(&opts)
	cmd := &cobra.Command{
		Use:   "init --service NAME --namespace NAMESPACE --dir DIR",
		Short: "Issue the certificates of an API server in a directory",
		Long:  initLong,
		Example: `  # Issue the certificates of the API server behind the Service demo/widgets
  certgen init --service widgets --namespace demo --dir pki

  # Issue only the serving certificate, for a cluster that already has a front proxy
  certgen init --service widgets --namespace demo --dir serving-only --with=

  # Print which certificates certgen would issue or replace
  certgen init --service widgets --namespace demo --dir pki --dry-run

  # Use another cluster domain, and add a name and an address for clients that do not use the Service
  certgen init --service widgets --namespace demo --dir other --cluster-domain k8s.internal \
    --dns widgets.example.com --ip 10.0.0.10

  # Issue the certificates of konnectivity too; agents connect to konnectivity.example.com
  certgen init --service widgets --namespace demo --dir all --with front-proxy,konnectivity \
    --konnectivity-agent-server-name konnectivity.example.com

  # Print the report as JSON
  certgen init --service widgets --namespace demo --dir pki -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fromFile, err := readConfig(configFile, names, issue)
			if err != nil {
				return err
			}
			if slices.Equal(opts.With, []string{""}) {
				opts.With = []string{} // --with "" requests none; nil would request the default
			}
			var signerErr error
			opts.Signer, signerErr = signer.read()
			if err := errors.Join(signerErr, fromFile.locate(opts.Validate())); err != nil {
				return err
			}
			return env.show(func() (*certs.Report, error) { return certs.Init(cmd.Context(), opts) })
		},
	}
	cmd.Flags().AddFlagSet(names)
	cmd.Flags().AddFlagSet(issue)
	signerFlags(cmd.Flags(), &signer)
	cmd.Flags().BoolVar(&opts.AllowNewCA, "allow-new-ca", false,
		"Replace a CA that cannot be used. certgen keeps the old CA in another directory.")
	dryRunFlag(cmd.Flags(), &opts.DryRun)
	addConfigFlag(cmd, &configFile)
	return cmd
}

const initLong = `Issue the certificates of the API server behind a Service, or update those in a directory.

Always:
  DIR/serving-ca/{tls.crt,tls.key}                 CA that can sign the Service's names only
  DIR/serving/{tls.crt,tls.key,ca.crt}             for the API server; ca.crt is the caBundle of
                                                   its APIServices

With --with front-proxy, which is the default:
  DIR/front-proxy-ca/{tls.crt,tls.key}             CA that can sign client certificates only
  DIR/front-proxy-client/{tls.crt,tls.key,ca.crt}  for kube-apiserver; ca.crt is its
                                                   --requestheader-client-ca-file

With --with konnectivity:
  DIR/konnectivity-server-ca/{tls.crt,tls.key}     CA for connections from kube-apiserver
  DIR/konnectivity-server/{tls.crt,tls.key,ca.crt}
                                                   for konnectivity's server, toward kube-apiserver
  DIR/konnectivity-apiserver-client/{tls.crt,tls.key,ca.crt}
                                                   for kube-apiserver's egress selector
  DIR/konnectivity-agent-ca/{tls.crt,tls.key}      CA for connections from agents
  DIR/konnectivity-agent-server/{tls.crt,tls.key,ca.crt}
                                                   for konnectivity's server, toward agents
  DIR/konnectivity-agent/{tls.crt,tls.key,ca.crt}  for agents without a token

Most clusters already have a front proxy and need the serving certificate only: --with ''.

Certificate and key of a directory change in one step: tls.crt and tls.key are links to the
current version. The API server and kube-apiserver reload them; konnectivity does not. Keep the
CA directories away from pods, and offline if you can. certgen needs a CA's key only to issue or
renew a certificate; certgen request gets a certificate signed elsewhere.

You can run the command again at any time, for example each day. certgen keeps a certificate that
is valid, has the right names and usages, matches its key and its CA, and has a third of its
lifetime left. It replaces any other. Certificates are valid for 90 days, those of konnectivity
for 365 days, CAs for 5 years. certgen refuses to replace a CA that has expired or cannot be
used, unless you set --allow-new-ca, because no client trusts a new CA yet.

A file in --config contains flags by their names, such as "dns: [a.example.com]". Flags on the
command line take precedence.`
