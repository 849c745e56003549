// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

type verifyFlags struct {
	files   verify.Options
	cluster cluster.Options
	live    live.Options
	strict  bool
}

func newVerifyCommand(env environment) *cobra.Command {
	var f verifyFlags
	ofCluster := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	cmd := &cobra.Command{
		Use:   "verify {--dir DIR | PATH... | --service NAME --namespace NAMESPACE [--dir DIR]}",
		Short: "Check certificates, or a running cluster, as kube-apiserver and API servers will",
		Long:  verifyLong,
		Example: `  certgen verify --dir pki

  # The names that one Service needs, whatever the certificate says
  certgen verify pki/serving --service widgets --namespace demo

  # On a control plane
  certgen verify /etc/kubernetes/pki/front-proxy-client.crt /etc/kubernetes/pki/front-proxy-ca.crt

  # What runs in a cluster: is the Secret served, and is the front proxy believed
  certgen verify --service widgets --namespace demo --secret widgets-serving --front-proxy-client pki/front-proxy-client

  # For scripts
  certgen verify --dir pki --strict -o json | jq '.findings[] | {id, object, fix}'
  certgen verify --dir pki -o json | jq '.checked[].certificate | {subject, dnsNames, sha256}'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			switch {
			case !cmd.Flags().Changed(dirFlag):
			case f.files.Service == (certs.Service{}):
				paths = append(paths, f.live.Dir)
			case len(paths) > 0:
				return cli.UsageErrorf(
					"expected paths, or a cluster to compare --dir with, found %q and --service; give one of them",
					paths)
			}
			if err := pathsOrFlags(paths, ofCluster, f.files.Service); err != nil {
				return err
			}
			if len(paths) == 0 {
				return f.verifyCluster(cmd.Context(), env)
			}
			if !cmd.Flags().Changed(allowedNamesFlag) {
				f.files.AllowedNames = nil
			}
			return f.verifyFiles(env, paths)
		},
	}
	flags := cmd.Flags()
	serviceFlags(flags, &f.files.Service, "(with paths: default is what the certificate names)")
	flags.StringVar(&f.live.Dir, dirFlag, "", "directory of the certificates, as certgen init made it; "+
		"with --service it is what the cluster is compared with")
	flags.StringSliceVar(&f.files.AllowedNames, allowedNamesFlag, []string{certs.FrontProxyUser},
		`common names that the front proxy may have, as kube-apiserver's flag of this name; "" allows any`)
	clusterFlags(ofCluster, &f.cluster)
	addressFlags(ofCluster, &f.cluster)
	ofCluster.StringVar(&f.live.Secret, "secret", "",
		"name of the Secret with the serving pair, to compare the cluster with; empty: none")
	ofCluster.StringVar(&f.live.ProxyClient, "front-proxy-client", "",
		"the front proxy's client pair, to probe the cluster with: a directory, or a file such as "+
			"front-proxy-client.crt with its key beside it; empty: no probe")
	flags.AddFlagSet(ofCluster)
	flags.BoolVar(&f.strict, "strict", false, "exit with 1 for warnings too")
	return cmd
}

const verifyLong = `Check the certificates in a directory of certgen init (--dir), or in other files
and directories, and all below them, as those who meet them will: kube-aggregator with an
APIService's caBundle, an API server with the client certificate of the front proxy, a server that
loads the pair. Nothing is changed and no cluster is asked.

What a certificate is for is told by the name of its directory, as certgen init makes it, or of its
file, such as kubeadm's; for other names by its extended key usages. The CAs to trust are in ca.crt
beside tls.crt; for other files, every root among the given ones is trusted. Directories *.old-TIME,
into which certgen init moves old CAs, are passed over.

With --service and --namespace and no path it checks a running API server with the bytes that are in
the cluster. Every endpoint of the Service is dialled with the name <service>.<namespace>.svc and
the caBundle of each APIService, as kube-aggregator does; the API is asked for through every
kube-apiserver. certgen compares the served certificate with the stored one: in a directory of certgen init
(--dir), in a Secret (--secret). With --front-proxy-client every endpoint is asked what the front
proxy's certificate is worth there: for a path that does not exist, in the name of a user that
nobody knows. Where the addresses of pods cannot be reached, as from a laptop, use --port-forward;
what could not be checked is said so.

Each finding has an id, a severity (error, warning or info), the evidence and what to do;
docs/operate/certificates.md lists them all. Findings of severity error are on standard error too.

Exit codes:
  0  no finding of severity error; with --strict, none of severity warning either
  1  such a finding, or the cluster did not answer, or has another time
  2  wrong usage, a path that does not exist or holds no certificates, or a kubeconfig that cannot be used`

func (f *verifyFlags) verifyFiles(env environment, paths []string) error {
	if f.files.Service != (certs.Service{}) { // either both names or neither
		if err := f.files.Service.Validate(); err != nil {
			return err
		}
	}
	f.files.Now = env.now()
	report, err := verify.Paths(paths, f.files)
	if err != nil {
		return cli.UsageError(certs.Flatten(err)...)
	}
	return showFindings(env, report, f.strict)
}

func (f *verifyFlags) verifyCluster(ctx context.Context, env environment) error {
	f.live.Service = f.files.Service
	c, err := open(env, f.cluster, f.live.Validate())
	if err != nil {
		return err
	}
	report, err := live.Check(ctx, c.Cluster, f.live)
	if err != nil {
		return err
	}
	return showFindings(env, report, f.strict)
}

const allowedNamesFlag = "requestheader-allowed-names"

// showFindings prints a report, and returns an error for each finding that makes the command
// fail.
func showFindings(env environment, r *verify.Report, strict bool) error {
	errs := []error{env.format.Print(env.stdout, r, func(w io.Writer) { printFindings(w, r, strict) })}
	for _, f := range r.Findings {
		if f.Severity == verify.Error || strict && f.Severity == verify.Warning {
			errs = append(errs, fmt.Errorf("%s %s: %s; %s", f.ID, f.Object, f.Evidence, f.Fix))
		}
	}
	return errors.Join(errs...)
}

func result(t verify.Counts) string {
	switch {
	case t.Errors > 0:
		return "ERROR"
	case t.Warnings > 0:
		return "warning"
	}
	return "ok"
}

func printFindings(w io.Writer, r *verify.Report, strict bool) {
	table(w, "OBJECT\tDETAIL\tUNTIL\tRESULT", r.Checked, func(c verify.Checked) []string {
		purpose := strings.TrimSpace(string(c.Purpose) + " " + c.ServerName)
		detail := strings.Trim(purpose+", "+c.Detail, ", ")
		return []string{c.Object, cmp.Or(detail, "-"), timeOrDash(c.NotAfter), result(c.Counts)}
	})
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n%s %s %s\n", f.Severity, f.ID, f.Object)
		line(w, "found", f.Evidence)
		line(w, "fix", f.Fix)
	}
	verdict := "ok"
	if r.Failed(strict) {
		verdict = "FAILED"
	}
	s := r.Summary
	fmt.Fprintf(w, "\n%s: %d checked, %d errors, %d warnings, %d infos\n", verdict, s.Checked, s.Errors,
		s.Warnings, s.Infos)
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}
