// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/cmd/internal/usage"
	"example.com/extension-apiserver/pkg/certs"
)

func newInitCommand(env environment) *cobra.Command {
	opts := certs.InitOptions{Now: env.now}
	var format string
	var dns, ips []string
	cmd := &cobra.Command{
		Use:   "init --service NAME --namespace NAMESPACE --out DIR",
		Short: "Make the certificates of an API server, keep those that are right",
		Long: `Make the certificates of the API server behind a Service, or bring those in a directory up to date.

  DIR/serving-ca/{tls.crt,tls.key}                 CA that may sign the Service's names only
  DIR/serving/{tls.crt,tls.key,ca.crt}             for the API server; ca.crt is the caBundle of its APIServices
  DIR/front-proxy-ca/{tls.crt,tls.key}             CA that may sign client certificates only
  DIR/front-proxy-client/{tls.crt,tls.key,ca.crt}  for kube-apiserver; ca.crt is its requestheader CA

Certificate and key of a directory change together: tls.crt and tls.key are links to the current version, and servers
that watch them reload by themselves. Keep the two CA directories away from pods and, if you can, off line: a missing
CA key does no harm until a leaf is due.

Run it again at any time, for instance each day. What is valid, has the right names and usages, fits its key and its
CA and has a third of its life left is kept. Leaves are made anew otherwise; they last 90 days. CAs last 5 years. An
expired CA is replaced. Any other CA that cannot be used is a reason to refuse, unless --allow-new-ca is given: a new
CA is trusted nowhere at first.`,
		Example: `  certgen init --service widgets --namespace demo --out pki

  # A cluster with another domain, and one more name and address for clients that do not come through the Service
  certgen init --service widgets --namespace demo --out pki --cluster-domain k8s.internal \
    --dns widgets.example.com --ip 10.0.0.10

  # For scripts
  certgen init --service widgets --namespace demo --out pki -o json`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.DNSNames, opts.IPs = splitCommas(dns), splitCommas(ips)
			if err := errors.Join(checkFormat(format), opts.Validate()); err != nil {
				return err
			}
			report, err := certs.Init(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return printResult(env.stdout, format, report, func(w io.Writer) { printReport(w, report) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Service.Name, "service", "", "name of the Service in front of the API server (required)")
	flags.StringVar(&opts.Service.Namespace, "namespace", "", "namespace of the Service (required)")
	flags.StringVar(&opts.Dir, "out", "", "directory for the certificates, made if missing (required)")
	flags.StringVar(&opts.Service.ClusterDomain, "cluster-domain", certs.DefaultClusterDomain, "DNS domain of the cluster")
	flags.StringArrayVar(&dns, "dns", nil, "more DNS names for the serving certificate, with commas or repeated")
	flags.StringArrayVar(&ips, "ip", nil, "IP addresses for the serving certificate, with commas or repeated")
	flags.BoolVar(&opts.AllowNewCA, "allow-new-ca", false, "replace a CA that cannot be used; the old one is moved aside")
	addOutputFlag(cmd, &format)
	return cmd
}

// splitCommas keeps empty values, which pflag's own lists drop, so that a variable that was not set is noticed.
func splitCommas(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}
