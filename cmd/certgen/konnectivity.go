// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/konnectivity"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newKonnectivityCommand(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "konnectivity",
		Short: "Check a konnectivity set, and make its server's kubeconfig",
		Args:  usage.NoCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVerifyKonnectivityCommand(env), newKubeconfigCommand(env))
	return cmd
}

func newVerifyKonnectivityCommand(env environment) *cobra.Command {
	var opts konnectivity.Options
	var format output.Format
	var strict bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check configuration, manifests and certificates of konnectivity against each other",
		Long: `Check that kube-apiserver, konnectivity's servers and agents fit each other: protocol and socket, authentication of agents,
names in certificates, times and counts. Nothing is changed and no cluster is asked.

DIR holds, in any folders:
  *.yaml   the EgressSelectorConfiguration, as a file or in a ConfigMap; the manifests of servers and agents, rendered; that of kube-apiserver
  pairs    of certgen init --with konnectivity, under their names. A file that a manifest names is found by the last two
           parts of its path: konnectivity-agent-server/tls.crt

Containers are known by the names kube-apiserver, konnectivity-server and konnectivity-agent, or by the images
kube-apiserver, proxy-server and proxy-agent. konnectivity/README.md lists all findings; those of the pairs are those of
certgen verify. Findings of severity error are on standard error too.

Exit codes:
  0  no finding of severity error; with --strict, none of severity warning either
  1  such a finding
  2  wrong usage, or a directory that does not exist or holds no manifests`,
		Example: `  mkdir set
  cp konnectivity/egress/grpc-uds.yaml /etc/kubernetes/manifests/kube-apiserver.yaml set
  kubectl kustomize konnectivity/server/static-pod >set/server.yaml
  kubectl kustomize konnectivity/agents/base >set/agents.yaml
  certgen init --service widgets --namespace demo --dir set/pki --with konnectivity \
    --konnectivity-agent-server-name konnectivity.example.com
  certgen konnectivity verify set

  # For scripts
  certgen konnectivity verify set --strict -o json | jq '.findings[] | {id, object, fix}'`,
		Args: needDirectory,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := format.Validate(); err != nil {
				return err
			}
			opts.Now = env.now()
			report, err := konnectivity.Verify(args[0], opts)
			if err != nil {
				return &usage.Error{Problems: certs.Flatten(err)}
			}
			if err := format.Print(env.stdout, report, func(w io.Writer) { printKonnectivity(w, report, strict) }); err != nil {
				return err
			}
			return findingErrors(report.Results, strict)
		},
	}
	flags := cmd.Flags()
	flags.Var((*commaList)(&opts.ClientCAFiles), "client-ca", "files with the CAs of the cluster's users; an error if one of them decides who is an agent")
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	output.AddFlag(cmd, &format)
	return cmd
}

func needDirectory(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage.Errorf("expected one directory to check, found %d; give one, such as ./set", len(args))
	}
	return nil
}

func printKonnectivity(w io.Writer, r *konnectivity.Report, strict bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tOBJECT\tIMAGE")
	for _, p := range r.Checked {
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Role, p.Object, orDash(p.Image))
	}
	table.Flush() //nolint:errcheck // as for every print: there is nobody left to tell
	printResults(w, r.Results, strict)
}
