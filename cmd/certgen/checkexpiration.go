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

	"example.com/extension-apiserver/internal/catalogue"
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
		Short: "List when certificates and their CAs expire, in files or in a cluster",
		Long:  checkExpirationLong,
		Example: `  # List when the certificates in a directory expire
  certgen check-expiration --dir pki

  # Exit with 1 two weeks before a certificate expires
  certgen check-expiration --dir pki --fail-within 2w

  # List when the certificates of a running API server expire
  certgen check-expiration --service widgets --namespace demo --secret widgets-serving

  # Print the expiration of kubeadm's certificates on a control plane as JSON
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
	cmd.Flags().StringVar(&dir, dirFlag, "", "Directory of certgen init.")
	const units = ", such as 30d, 2w or 36h."
	// certgen init renews a 90-day leaf certificate when 30 days are left. At 7 days, renewal has
	// failed for weeks.
	durationVar(cmd.Flags(), &f.opts.WarnWithin, "warn-within", 30*day,
		"Time before expiration at which a certificate gets the state warn"+units)
	durationVar(cmd.Flags(), &f.opts.FailWithin, "fail-within", 7*day,
		"Time before expiration at which a certificate gets the state due, and the exit code is 1"+units)
	clusterFlags(ofCluster, &f.cluster)
	serviceFlags(ofCluster, &f.live.Service, "Required without --dir and PATH.")
	addressFlags(ofCluster, &f.cluster)
	ofCluster.StringVar(&f.live.Secret, "secret", "",
		"Name of the Secret with the serving certificate. If empty, certgen checks no Secret.")
	cmd.Flags().AddFlagSet(ofCluster)
	return cmd
}

const checkExpirationLong = `List when certificates expire, and then each of their CAs once. certgen
reads a directory of certgen init (--dir), or other files and directories, including
subdirectories.

With --service and --namespace, and without paths, certgen lists the certificates of a running
cluster: those that the endpoints of the Service serve, that in a Secret (--secret), and the CAs
in the caBundle of each APIService and in the ConfigMap
kube-system/extension-apiserver-authentication, which contains the CAs of the front proxy and of
users.

States:
  ok       more time is left than --warn-within
  warn     at most --warn-within is left; the exit code is still 0
  due      at most --fail-within is left
  expired  the certificate has expired
  error    the certificate is missing, cannot be read or reached, or is not valid yet

A CA is "signing" if it signed one of the certificates, and "retiring" if it did not and is
trusted together with a CA that did. JSON contains the field names of kubeadm certs
check-expiration too (expirationDate, residualTime, caName, missing, externallyManaged). Times
are in UTC, residualTime is in seconds.`

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
		return cli.UsageErrorf("expected files or directories, found an empty path; check for an unset variable")
	case found != "" && len(paths) > 0:
		return cli.UsageErrorf("expected --dir or paths, or a cluster, found %s and --%s; use one of them",
			quoted(paths), found)
	case found == "" && len(paths) == 0 && service == (certs.Service{}):
		return cli.UsageErrorf(
			"expected files, directories or a Service, found none; set --dir, name other paths, or set --service and " +
				"--namespace")
	}
	return nil
}

// expirationErrors returns an error for each certificate that makes the command fail.
func expirationErrors(r *verify.ExpirationReport) error {
	var errs []error
	add := func(e verify.Expiration, fix string) {
		switch e.State {
		case verify.StateDue, verify.StateExpired:
			errs = append(errs, fmt.Errorf("%s: %s is %s, valid until %s; %s", e.Path, e.Name, e.State,
				timeOrDash(e.NotAfter), cmp.Or(e.Fix, fix)))
		case verify.StateError:
			for _, f := range e.Findings {
				errs = append(errs, fmt.Errorf("%s %s: %s; %s", f.ID, f.Object, f.Evidence, f.Fix))
			}
		}
	}
	for _, e := range r.Certificates {
		add(e, catalogue.RuleOf("C07").Fix)
	}
	for _, a := range r.Authorities {
		add(a.Expiration, "replace it with certgen rotate, which adds the new CA before it removes the old one")
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
	table(w, "CERTIFICATE AUTHORITY\tFINGERPRINT\tEXPIRES\tLEFT\tISSUED\tTRUSTED BY\tSTATE", r.Authorities,
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
