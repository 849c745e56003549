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

	"example.com/extension-apiserver/internal/catalogue"
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
		Short: "Verify certificates in files or in a running cluster",
		Long:  verifyLong,
		Example: `  # Verify the certificates in a directory
  certgen verify --dir pki

  # Verify that a certificate has the names of the Service demo/widgets
  certgen verify pki/serving --service widgets --namespace demo

  # Verify kubeadm's front-proxy certificates on a control plane
  certgen verify /etc/kubernetes/pki/front-proxy-client.crt /etc/kubernetes/pki/front-proxy-ca.crt

  # Verify that a running API server serves the certificate of the Secret and trusts the front proxy
  certgen verify --service widgets --namespace demo --secret widgets-serving \
    --front-proxy-client pki/front-proxy-client

  # Print findings and certificates as JSON
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
					"expected paths, or a cluster to compare --dir with, found %s and --service; use one of them",
					quoted(paths))
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
	serviceFlags(flags, &f.files.Service,
		"Required to verify a running cluster. For files, defaults to the Service in the certificate.")
	flags.StringVar(&f.live.Dir, dirFlag, "", "Directory of certgen init. With --service, certgen compares "+
		"the running cluster with it.")
	flags.StringSliceVar(&f.files.AllowedNames, allowedNamesFlag, []string{certs.FrontProxyUser},
		`Common names that the front proxy can have, as in kube-apiserver's flag of this name. "" allows any name.`)
	clusterFlags(ofCluster, &f.cluster)
	addressFlags(ofCluster, &f.cluster)
	ofCluster.StringVar(&f.live.Secret, "secret", "",
		"Name of the Secret with the serving certificate, with which certgen compares the running cluster.")
	ofCluster.StringVar(&f.live.ProxyClient, "front-proxy-client", "",
		"Client certificate of the front proxy, with which certgen probes every endpoint: a directory, or a file such "+
			"as front-proxy-client.crt with the key in the same directory.")
	flags.AddFlagSet(ofCluster)
	flags.BoolVar(&f.strict, "strict", false, "Exit with 1 for warnings too.")
	return cmd
}

const verifyLong = `Verify the certificates in a directory of certgen init (--dir), or in other files and directories
(PATH), including subdirectories, as their users do: kube-aggregator with the caBundle of an
APIService, an API server with the front proxy's client certificate, and a server that loads
certificate and key. certgen changes nothing and sends no request to a cluster.

certgen recognizes the use of a certificate by its directory, as certgen init names it, by a file
name such as front-proxy-client.crt, or by its extended key usages. For a file tls.crt, certgen
trusts the CAs in ca.crt of the same directory. For any other file, it trusts every root CA in the
given paths. It skips directories *.old-TIME, to which certgen init moves old CAs.

With --service and --namespace, and without PATH, certgen verifies a running API server. It
connects to every endpoint of the Service with the name <service>.<namespace>.svc and the
caBundle of each APIService, as kube-aggregator does, and sends a request for the API through
every kube-apiserver. It compares the served certificate with that in a directory (--dir) or in a
Secret (--secret). With --front-proxy-client, it sends a request for a path and a user that do
not exist to every endpoint, with the front proxy's certificate, to learn whether the endpoint
trusts the certificate. If you cannot reach pods, for example from a laptop, use --port-forward.
certgen reports checks that it skips.

Each finding has an id, a severity (error, warning or info), the evidence and a fix.
docs/operate/certificates.md lists all findings. Standard error reports findings of severity
error too.`

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
		if f.Severity == catalogue.Error || strict && f.Severity == catalogue.Warning {
			errs = append(errs, fmt.Errorf("%s %s: %s; %s", f.ID, f.Object, f.Evidence, f.Fix))
		}
	}
	return errors.Join(errs...)
}

func result(t catalogue.Counts) string {
	switch {
	case t.Errors > 0:
		return "ERROR"
	case t.Warnings > 0:
		return "warning"
	}
	return "ok"
}

func printFindings(w io.Writer, r *verify.Report, strict bool) {
	table(w, "OBJECT\tDETAIL\tEXPIRES\tRESULT", r.Checked, func(c verify.Checked) []string {
		purpose := strings.TrimSpace(string(c.Purpose) + " " + c.ServerName)
		detail := strings.Trim(purpose+", "+c.Detail, ", ")
		return []string{c.Object, cmp.Or(detail, "-"), timeOrDash(c.NotAfter), result(c.Counts)}
	})
	for _, f := range r.Findings {
		fmt.Fprintf(w, "\n%s %s %s\n", f.Severity, f.ID, f.Object)
		line(w, "found", f.Evidence)
		line(w, "fix", f.Fix)
	}
	state := "ok"
	if r.Failed(strict) {
		state = "FAILED"
	}
	s := r.Summary
	fmt.Fprintf(w, "\n%s: %d checked, %d errors, %d warnings, %d infos\n", state, s.Checked, s.Errors,
		s.Warnings, s.Infos)
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}
