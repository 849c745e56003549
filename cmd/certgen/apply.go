// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

const applyLong = `Install the certificates of certgen init into a cluster. certgen apply sets the caBundle of every
APIService whose backend is the Service to the CAs in DIR/serving/ca.crt. With --secret, it also
stores the certificate and key in DIR/serving in a Secret of type kubernetes.io/tls. It reads no
CA key and creates no APIService.

certgen first prints its plan, and sends every write as a server-side dry run. If one write is
refused, or with --dry-run, certgen changes nothing. Writes use server-side apply with the field manager certgen,
and a second run writes nothing. While certgen writes, it holds a Lease in the namespace of the
Service, which excludes rotations.

certgen apply refuses:
  - a certificate that kube-aggregator would not verify with these CAs
  - a caBundle that an injector owns, such as that of cert-manager or OpenShift
  - a caBundle that another field manager owns, unless you set --force-conflicts
  - an APIService with insecureSkipTLSVerify, unless you set --clear-insecure
  - the removal of a trusted CA, and a certificate whose CA is not trusted yet, which can
    interrupt a running API, unless you set --replace-trust`

func newApplyCommand(env environment) *cobra.Command {
	var opts apply.Options
	var target cluster.Options
	cmd := &cobra.Command{
		Use:   "apply --dir DIR --service NAME --namespace NAMESPACE [--secret NAME]",
		Short: "Install the serving certificate and its CAs into a cluster",
		Long:  applyLong,
		Example: `  # Set the caBundle of the APIServices, and store the serving certificate in a Secret
  certgen apply --dir pki --service widgets --namespace demo --secret widgets-serving

  # Print the plan, and check that the cluster accepts it, without changing anything
  certgen apply --dir pki --service widgets --namespace demo --dry-run

  # Take over a caBundle that kubectl apply has set
  certgen apply --dir pki --service widgets --namespace demo --force-conflicts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(env, target, opts.Validate())
			if err != nil {
				return err
			}
			// Check the local files before requesting a Lease from the cluster.
			if _, err := apply.ReadSource(certs.Dir(opts.Dir), opts.Service, c.Time()); err != nil {
				if clock, wrong := errors.AsType[*certs.RefusedError](cluster.CheckClock(cmd.Context(), c)); wrong {
					return clock // the local clock, by which the files were checked, is wrong
				}
				return err
			}
			do := func(ctx context.Context) error { return planAndApply(ctx, env, c, opts) }
			if opts.DryRun {
				return do(cmd.Context())
			}
			return c.Exclusive(cmd.Context(), opts.Service, do)
		},
	}
	flags := cmd.Flags()
	clusterFlags(flags, &target)
	serviceFlags(flags, &opts.Service, "Required.")
	flags.StringVar(&opts.Dir, dirFlag, "", "Directory of certgen init. Required.")
	flags.StringVar(&opts.Secret, "secret", "",
		"Name of the Secret for the serving certificate, in the namespace of the Service. If empty, certgen writes no "+
			"Secret.")
	dryRunFlag(flags, &opts.DryRun)
	flags.BoolVar(&opts.ForceConflicts, "force-conflicts", false,
		"Take over fields that other field managers own, except those that an injector owns.")
	flags.BoolVar(&opts.ClearInsecure, "clear-insecure", false, "Set insecureSkipTLSVerify to false in the same write.")
	flags.BoolVar(&opts.ReplaceTrust, "replace-trust", false,
		"Allow changes of trust that can interrupt a running API. certgen rotate changes trust without interruption.")
	cli.MarkRequired(cmd, dirFlag, "service", "namespace")
	return cmd
}

func planAndApply(ctx context.Context, env environment, c apply.Client, opts apply.Options) error {
	var shown []certs.Item
	plan, err := c.PlanAndApply(ctx, opts, func(plan *apply.Plan) {
		if *env.format == cli.Text && !reflect.DeepEqual(plan.Items, shown) {
			printApplyPlan(env.stdout, plan)
		}
		shown = plan.Items
	})
	if plan == nil {
		return err
	}
	return errors.Join(err, env.format.Print(env.stdout, plan,
		func(w io.Writer) { printApplied(w, plan, err) }))
}

func printApplyPlan(w io.Writer, plan *apply.Plan) {
	table(w, "PLAN\tOBJECT\tREASON", plan.Items, func(i certs.Item) []string {
		return []string{string(i.Action),
			i.Path, i.Reason}
	})
	for _, item := range plan.Items {
		for _, note := range item.Notes {
			line(w, "note", note)
		}
	}
}

func printApplied(w io.Writer, plan *apply.Plan, err error) {
	fmt.Fprintln(w)
	done := "applied"
	if plan.DryRun {
		done = "accepted"
	}
	nothing := true
	for _, item := range plan.Items {
		if item.Action != certs.Kept {
			nothing = false
			fmt.Fprintf(w, "%-9s %s\n", done, item.Path)
		}
	}
	switch {
	case plan.DryRun && err == nil:
		fmt.Fprintln(w, "Dry run: the cluster accepted every write and stored none.")
	case nothing && !plan.DryRun:
		fmt.Fprintln(w, "Nothing was written.")
	}
}
