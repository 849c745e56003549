// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cli"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/live"
)

type expirationFlags struct {
	opts    verify.ExpirationOptions
	cluster cluster.Options
	live    live.Options
}

func newCheckExpirationCommand(env environment) *cobra.Command {
	const day = 24 * time.Hour
	var f expirationFlags
	var dir string
	ofCluster := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	cmd := &cobra.Command{
		Use:   "check-expiration {--dir DIR | PATH... | --service NAME --namespace NAMESPACE}",
		Short: "List when certificates and their CAs end, in files or in a cluster",
		Long:  checkExpirationLong,
		Example: `  certgen check-expiration --dir pki

  # An alarm two weeks before anything ends
  certgen check-expiration --dir pki --fail-within 2w

  # What runs in a cluster
  certgen check-expiration --service widgets --namespace demo --secret widgets-serving

  # On a control plane
  certgen check-expiration /etc/kubernetes/pki -o json | jq '.certificates[] | {name, expirationDate, state}'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if cmd.Flags().Changed(dirFlag) {
				paths = append(paths, dir)
			}
			if err := pathsOrFlags(paths, ofCluster, f.live.Service); err != nil {
				return err
			}
			report, err := f.report(cmd.Context(), env, paths)
			if err != nil {
				return err
			}
			printed := env.format.Print(env.stdout, report, func(w io.Writer) { printExpirations(w, report) })
			return errors.Join(printed, expirationErrors(report))
		},
	}
	cmd.Flags().StringVar(&dir, dirFlag, "", "directory of the certificates, as certgen init made it")
	const units = ", such as 30d, 2w or 36h"
	// certgen init renews a 90-day leaf certificate when 30 days are left. At 7 days, renewal has
	// failed for weeks.
	durationVar(cmd.Flags(), &f.opts.WarnWithin, "warn-within", 30*day,
		"what has no more left than this has the state warn"+units)
	durationVar(cmd.Flags(), &f.opts.FailWithin, "fail-within", 7*day,
		"what has no more left than this has the state due, and the exit code is 1"+units)
	clusterFlags(ofCluster, &f.cluster)
	serviceFlags(ofCluster, &f.live.Service, "(required without --dir or PATH)")
	addressFlags(ofCluster, &f.cluster)
	ofCluster.StringVar(&f.live.Secret, "secret", "", "name of the Secret with the serving pair; empty: none")
	cmd.Flags().AddFlagSet(ofCluster)
	return cmd
}

const checkExpirationLong = `List when the certificates in a directory of certgen init (--dir), or
in other files and directories, and all below them, end, and when their CAs do, each CA once.

With --service and --namespace alone it looks at a running cluster, as certgen verify does: at what
every endpoint of the Service serves, what a Secret stores (--secret), and the CAs in each
APIService's caBundle and in the ConfigMap kube-system/extension-apiserver-authentication, those of
the front proxy and those of users.

States:
  ok       more is left than --warn-within
  warn     no more is left than --warn-within; the exit code stays 0
  due      no more is left than --fail-within
  expired  it has ended
  error    it is missing, cannot be read or reached, or is not valid yet

A CA is marked signing when it signed one of the certificates, and retiring when it is only trusted
beside one that did. JSON has the field names of kubeadm certs check-expiration too (expirationDate,
residualTime, caName, missing, externallyManaged); times are UTC, residualTime is in seconds.

Exit codes:
  0  every certificate and CA is ok or warn
  1  one is due, expired or error, or the cluster did not answer, or has another time
  2  wrong usage, a path that does not exist or holds no certificates, or a kubeconfig that cannot be used`

// report reads the expirations from the files at paths, or from the cluster if paths is empty.
func (f *expirationFlags) report(ctx context.Context, env environment,
	paths []string) (*verify.ExpirationReport, error) {
	f.opts.Now = env.now()
	if len(paths) == 0 {
		c, err := open(env, f.cluster, f.live.Validate())
		if err != nil {
			return nil, err
		}
		return live.Expirations(ctx, c.Cluster, f.live, f.opts)
	}
	held, err := verify.InFiles(paths, f.opts.Now)
	if err != nil {
		return nil, cli.UsageError(certs.Flatten(err)...)
	}
	return verify.ExpirationsOf(held, f.opts), nil
}

const dirFlag = "dir"

// pathsOrFlags returns a usage error unless the command line has either paths and no cluster
// flags, or a Service and no paths.
func pathsOrFlags(paths []string, flags *pflag.FlagSet, service certs.Service) error {
	found := ""
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			found = f.Name
		}
	})
	switch {
	case slices.Contains(paths, ""):
		return cli.UsageErrorf("expected files or directories, found an empty path; is a variable not set?")
	case found != "" && len(paths) > 0:
		return cli.UsageErrorf("expected --dir or paths, or a cluster, found %q and --%s; give one of them", paths,
			found)
	case found == "" && len(paths) == 0 && service == (certs.Service{}):
		return cli.UsageErrorf(
			"expected files or directories, found none; give the directory of certgen init (--dir), other paths, or " +
				"a cluster's Service: --service, --namespace")
	}
	return nil
}

// expirationErrors returns an error for each certificate that makes the command fail.
func expirationErrors(r *verify.ExpirationReport) error {
	var errs []error
	add := func(e verify.Expiration, fix string) {
		switch e.State {
		case verify.StateDue, verify.StateExpired:
			errs = append(errs, fmt.Errorf("%s: %s %s, end is at %s; %s", e.Path, e.Name, e.State,
				timeOrDash(e.NotAfter), cmp.Or(e.Fix, fix)))
		case verify.StateError:
			for _, f := range e.Findings {
				errs = append(errs, fmt.Errorf("%s %s: %s; %s", f.ID, f.Object, f.Evidence, f.Fix))
			}
		}
	}
	for _, e := range r.Certificates {
		add(e, "renew it: "+verify.Renew)
	}
	for _, a := range r.Authorities {
		add(a.Expiration, "replace it while its successor is trusted beside it: certgen rotate")
	}
	return errors.Join(errs...)
}

func printExpirations(w io.Writer, r *verify.ExpirationReport) {
	table(w, "CERTIFICATE\tSUBJECT\tEXPIRES\tLEFT\tRENEW AT\tCA\tSTATE", r.Certificates,
		func(e verify.Expiration) []string {
			ca := e.CAName
			if e.CASHA256 != "" {
				ca += "/" + e.CASHA256[:8]
			}
			return []string{e.Name, cmp.Or(e.Subject, "-"), timeOrDash(e.ExpirationDate), timeLeft(e),
				timeOrDash(e.RenewAt), cmp.Or(ca, "-"), string(e.State)}
		})
	if len(r.Authorities) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "CERTIFICATE AUTHORITY\tFINGERPRINT\tEXPIRES\tLEFT\tISSUES\tTRUSTED BY\tSTATE", r.Authorities,
		func(a verify.AuthorityExpiration) []string {
			name := a.Name
			if a.Role != "" {
				name += " (" + a.Role + ")"
			}
			trusting := cmp.Or(strings.Join(a.TrustedBy, ", "), "-")
			return []string{name, a.SHA256[:8], timeOrDash(a.ExpirationDate), timeLeft(a.Expiration),
				strconv.Itoa(a.Issues), trusting, string(a.State)}
		})
}

func timeLeft(e verify.Expiration) string {
	if e.ExpirationDate == nil {
		return "-"
	}
	return verify.TimeLeft(time.Duration(e.ResidualSeconds) * time.Second)
}
