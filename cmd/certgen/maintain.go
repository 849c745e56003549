// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/usage"
)

func newMaintainCommand(env environment) *cobra.Command {
	var opts rotation.MaintainOptions
	var cluster rotation.OpenOptions
	var format output.Format
	cmd := &cobra.Command{
		Use:   "maintain --service NAME --namespace NAMESPACE --secret NAME --ca-secret NAME",
		Short: "Keep the serving certificate and its CA in Secrets of the cluster",
		Long: `Keep the serving certificate and its CA in Secrets of the cluster, for a job in a pod: what certgen init makes, without
a directory that lasts, and certgen apply.

The CA and its key are in the Secret --ca-secret, which must exist; an empty one gets a new CA. The serving pair is in the
Secret --secret, which is made if missing, and in no other place. The pair is made anew, by the same CA, when less than a
third of its life is left. The CA becomes the caBundle of every APIService whose backend is the Service; with --apiservice
and --wait it waits for those to come. What is right is left alone, and several may run at once.

What certgen init and certgen apply refuse is refused here. A CA that is due is named and not replaced.

Exit codes:
  0  the Secrets and the APIServices are as they should be
  1  refused, or the cluster did not accept or answer; run it again when the cause is gone
  2  wrong usage, or a kubeconfig that cannot be used`,
		Example: `  # Once for each cluster: where the CA will be
  kubectl create secret generic widgets-serving-ca --namespace demo

  certgen maintain --service widgets --namespace demo --secret widgets-serving --ca-secret widgets-serving-ca`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(append(cluster.Validate(), format.Validate(), opts.Validate())...); err != nil {
				return err
			}
			c, err := open(env, cluster)
			if err != nil {
				return err
			}
			report, err := c.Maintain(cmd.Context(), opts)
			if report == nil {
				return err
			}
			return errors.Join(err, format.Print(env.stdout, report, func(w io.Writer) { printMaintained(w, report) }))
		},
	}
	flags := cmd.Flags()
	clusterFlags(flags, &cluster, &opts.Service)
	flags.StringVar(&opts.Secret, "secret", "", "name of the Secret for the serving pair, in the namespace of the Service (required)")
	flags.StringVar(&opts.CASecret, "ca-secret", "", "name of the Secret for the serving CA and its key, in the same namespace (required)")
	flags.Var((*commaList)(&opts.APIServices), "apiservice", "names of APIServices to wait for, with commas or repeated")
	flags.DurationVar(&opts.Wait, "wait", 0, "how long to wait for them, after the Secrets are written")
	keyTypeFlag(flags, &opts.KeyType)
	output.AddFlag(cmd, &format)
	return cmd
}

func printMaintained(w io.Writer, report *rotation.MaintainReport) {
	for _, pair := range report.Pairs {
		fmt.Fprintf(w, "%-9s Secret %s\n", pair.Action, pair.Secret)
		line(w, "why", pair.Reason)
		line(w, "until", pair.NotAfter.UTC().Format(time.RFC3339))
		for _, note := range pair.Notes {
			line(w, "note", note)
		}
	}
	fmt.Fprintln(w)
	printApplyPlan(w, report.Apply)
	printApplied(w, report.Apply)
}
