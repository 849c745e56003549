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

func newApplyCommand(env environment) *cobra.Command {
	var opts apply.Options
	var target cluster.Options
	cmd := &cobra.Command{
		Use:   "apply --dir DIR --service NAME --namespace NAMESPACE [--secret NAME]",
		Short: "Bring the serving certificate and its CAs into a cluster",
		Long: `Bring what certgen init made into a cluster: the CAs of DIR/serving/ca.crt as the caBundle
of every APIService whose backend is the Service, and, with --secret, the pair in DIR/serving as a
Secret of type kubernetes.io/tls. The keys of CAs are not read.

Everything is planned and printed first, and every write is tried as a dry run of the server before
the first one; a plan that is refused for one object leaves all as they are. Fields are applied on
the server's side with the field manager certgen. What is right already is left alone. An APIService
is never created. Unless it is a dry run, a Lease in the namespace of the Service keeps rotations
away meanwhile.

Refused are: a certificate that kube-aggregator would not accept with these CAs; a caBundle that
another field manager owns, without --force-conflicts; one that an injector keeps (cert-manager,
OpenShift), always; insecureSkipTLSVerify, without --clear-insecure; and, without --replace-trust,
what can interrupt a running API: to take out a CA that is trusted now, and to store a certificate
whose CA is not trusted yet.

Exit codes:
  0  the cluster is as it should be, or with --dry-run would be
  1  refused, or the cluster did not accept or answer
  2  wrong usage, or a kubeconfig that cannot be used`,
		Example: `  certgen apply --dir pki --service widgets --namespace demo --secret widgets-serving

  # Only look: what would be written, and would the cluster take it
  certgen apply --dir pki --service widgets --namespace demo --dry-run=server

  # The first time, when kubectl apply has set another caBundle
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
			if !opts.DryRun.Writes() {
				return do(cmd.Context())
			}
			return c.Exclusive(cmd.Context(), opts.Service, do)
		},
	}
	flags := cmd.Flags()
	clusterFlags(flags, &target)
	serviceFlags(flags, &opts.Service, "(required)")
	flags.StringVar(&opts.Dir, dirFlag, "", "directory of the certificates, as certgen init made it (required)")
	flags.StringVar(&opts.Secret, "secret", "",
		"name of the Secret for the serving pair, in the namespace of the Service; empty: none is written")
	flags.StringVar((*string)(&opts.DryRun), "dry-run", string(apply.DryRunNone),
		"none, client (the cluster is only read) or server (it tries every write and stores none)")
	flags.BoolVar(&opts.ForceConflicts, "force-conflicts", false,
		"take the fields from other managers, but for an injector")
	flags.BoolVar(&opts.ClearInsecure, "clear-insecure", false, "set insecureSkipTLSVerify to false in the same write")
	flags.BoolVar(&opts.ReplaceTrust, "replace-trust", false,
		"allow what can interrupt a running API; certgen rotate does it in steps")
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
		func(w io.Writer) { printApplied(w, plan, opts.DryRun, err) }))
}

func printApplyPlan(w io.Writer, plan *apply.Plan) {
	table(w, "PLAN\tOBJECT\tWHY", plan.Items, func(i certs.Item) []string {
		return []string{string(i.Action),
			i.Path, i.Reason}
	})
	for _, item := range plan.Items {
		for _, note := range item.Notes {
			line(w, "note", note)
		}
	}
}

func printApplied(w io.Writer, plan *apply.Plan, dryRun apply.DryRun, err error) {
	fmt.Fprintln(w)
	if dryRun == apply.DryRunClient {
		fmt.Fprintln(w, "Dry run: the cluster was only read.")
		return
	}
	done := "applied"
	if dryRun == apply.DryRunServer {
		done = "tried"
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
		fmt.Fprintln(w, "Dry run: the cluster tried every write and stored none.")
	case nothing && !plan.DryRun:
		fmt.Fprintln(w, "Nothing was written.")
	}
}
