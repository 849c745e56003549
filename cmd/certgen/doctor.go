// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/usage"
)

func newDoctorCommand(env environment) *cobra.Command {
	var opts rotation.LiveOptions
	var cluster rotation.OpenOptions
	var format output.Format
	var strict bool
	cmd := &cobra.Command{
		Use:   "doctor --service NAME --namespace NAMESPACE",
		Short: "Check what a running cluster serves, stores and trusts",
		Long: `Check a running API server with the bytes that are in the cluster, as those who meet them do. Nothing is changed.

Every endpoint of the Service is dialled with the name <service>.<namespace>.svc and the caBundle of each APIService, as
kube-aggregator does; the API is asked for through every kube-apiserver. What is served is compared with what is stored:
in a directory of certgen init (--from), in a Secret (--secret). With --proxy-client every endpoint is asked what the front
proxy's certificate is worth there: for a path that does not exist, in the name of a user that nobody knows.

Where the addresses of pods cannot be reached, run it in the cluster or on a node; what could not be checked is said so.
Findings are those of certgen verify, and more; docs/certificates.md lists them all.

Exit codes:
  0  no finding of severity error; with --strict, none of severity warning either
  1  such a finding, or the cluster did not answer; standard error says which
  2  wrong usage, or a kubeconfig that cannot be used`,
		Example: `  certgen doctor --service widgets --namespace demo

  # Is the Secret served, and is the front proxy believed
  certgen doctor --service widgets --namespace demo --secret widgets-serving --proxy-client pki/front-proxy-client

  # For scripts
  certgen doctor --service widgets --namespace demo --strict -o json | jq '.findings[] | {id, object, fix}'`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(env, cluster, format.Validate(), opts.Validate())
			if err != nil {
				return err
			}
			report, err := c.Check(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if err := format.Print(env.stdout, report, func(w io.Writer) { printLive(w, report, strict) }); err != nil {
				return err
			}
			return findingErrors(report.Findings, strict)
		},
	}
	flags := cmd.Flags()
	clusterFlags(flags, &cluster, &opts.Service)
	addressFlags(flags, &cluster)
	flags.StringVar(&opts.From, "from", "", "directory as certgen init made it, to compare with; empty: none")
	flags.StringVar(&opts.Secret, "secret", "", "name of the Secret with the serving pair, to compare with; empty: none")
	flags.StringVar(&opts.ProxyClient, "proxy-client", "", "directory of the front proxy's client pair, to probe with; empty: no probe")
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	output.AddFlag(cmd, &format)
	return cmd
}

func printLive(w io.Writer, r *rotation.LiveReport, strict bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tDETAIL\tUNTIL\tRESULT")
	for _, c := range r.Checked {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Object, orDash(c.Detail), timeOrDash(c.NotAfter), result(c.Errors, c.Warnings))
	}
	table.Flush() //nolint:errcheck // as for every print: there is nobody left to tell
	printFindings(w, r.Findings, r.Summary, r.Failed(strict))
}
