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
		Short: "Make the certificates of an API server, keep those that are right",
		Long:  initLong,
		Example: `  certgen init --service widgets --namespace demo --dir pki

  # Only look: what is right, what is due
  certgen init --service widgets --namespace demo --dir pki --dry-run

  # A cluster with another domain, and one more name and address for clients that do not come through the Service
  certgen init --service widgets --namespace demo --dir other --cluster-domain k8s.internal \
    --dns widgets.example.com --ip 10.0.0.10

  # With the certificates of konnectivity, which agents reach at konnectivity.example.com
  certgen init --service widgets --namespace demo --dir all --with front-proxy,konnectivity \
    --konnectivity-agent-server-name konnectivity.example.com

  # For scripts
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
		"replace a CA that cannot be used; the old one is moved aside")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be done and write nothing")
	addConfigFlag(cmd, &configFile)
	return cmd
}

const initLong = `Make the certificates of the API server behind a Service, or bring those in a
directory up to date.

Always:
  DIR/serving-ca/{tls.crt,tls.key}                     CA that may sign the Service's names only
  DIR/serving/{tls.crt,tls.key,ca.crt}                 for the API server; ca.crt is the caBundle of its APIServices

Unless --with leaves it out:
  DIR/front-proxy-ca/{tls.crt,tls.key}                 CA that may sign client certificates only
  DIR/front-proxy-client/{tls.crt,tls.key,ca.crt}      for kube-apiserver; ca.crt is its requestheader CA

With --with konnectivity:
  DIR/konnectivity-server-ca/{tls.crt,tls.key}         CA of the connections of kube-apiserver to konnectivity's server
  DIR/konnectivity-server/{tls.crt,tls.key,ca.crt}     for konnectivity's server, towards kube-apiserver
  DIR/konnectivity-apiserver-client/{tls.crt,tls.key,ca.crt}  for kube-apiserver's egress selector
  DIR/konnectivity-agent-ca/{tls.crt,tls.key}          CA of the connections of agents to konnectivity's server
  DIR/konnectivity-agent-server/{tls.crt,tls.key,ca.crt}  for konnectivity's server, towards agents
  DIR/konnectivity-agent/{tls.crt,tls.key,ca.crt}      for agents that have no token

Certificate and key of a directory change together: tls.crt and tls.key are links to the current
version, and servers that watch them reload by themselves; konnectivity does not. Keep the CA
directories away from pods and, if you can, off line: a missing CA key does no harm until a leaf is
due, and certgen request gets one signed elsewhere.

Run it again at any time, for instance each day. certgen keeps what is valid, has the right names and usages, fits
its key and its CA and has a third of its life left. Otherwise it issues a new leaf. Leaves
last 90 days, those of konnectivity 365. CAs last 5 years. A CA that cannot be used, or has expired,
is a reason to refuse, unless --allow-new-ca is given: a new CA is trusted nowhere at first.

A file given with --config holds flags by their names, such as "dns: [a.example.com]"; flags on the
command line win.`
