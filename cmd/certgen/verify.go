// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/output"
	"example.com/extension-apiserver/internal/usage"
)

func newVerifyCommand(env environment) *cobra.Command {
	var opts verify.Options
	var format output.Format
	var strict bool
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Check certificates as kube-apiserver and API servers will",
		Long: `Check the certificates in files and directories, and all below them, as those who meet them will: kube-aggregator
with an APIService's caBundle, an API server with the client certificate of the front proxy, a server that loads the
pair. Nothing is changed and no cluster is asked.

What a certificate is for is told by the name of its directory, as certgen init makes it, or of its file; for other
names by its extended key usages. The CAs to trust are in ca.crt beside tls.crt; for other files, every root among the
given ones is trusted. Directories *.old-TIME, into which certgen init moves old CAs, are passed over.

Each finding has an id, a severity (error, warning or info), the evidence and what to do; docs/certificates.md lists
them all. Findings of severity error are on standard error too.

Exit codes:
  0  no finding of severity error; with --strict, none of severity warning either
  1  such a finding
  2  wrong usage, or a path that does not exist or holds no certificates`,
		Example: `  certgen verify pki

  # The names that one Service needs, whatever the certificate says
  certgen verify pki/serving --service widgets --namespace demo

  # On a control plane
  certgen verify /etc/kubernetes/pki/front-proxy-client.crt /etc/kubernetes/pki/front-proxy-ca.crt

  # For scripts
  certgen verify pki --strict -o json | jq '.findings[] | {id, object, fix}'`,
		Args: needPaths,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := errors.Join(format.Validate(), checkService(opts.Service)); err != nil {
				return err
			}
			if !cmd.Flags().Changed(allowedNamesFlag) {
				opts.AllowedNames = nil
			}
			opts.Now = env.now()
			report, err := verify.Paths(paths, opts)
			if err != nil {
				return &usage.Error{Problems: certs.Flatten(err)}
			}
			if err := format.Print(env.stdout, report, func(w io.Writer) { printVerification(w, report, strict) }); err != nil {
				return err
			}
			return findingErrors(report.Findings, strict)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Service.Name, "service", "", "name of the Service in front of the API server; empty: the one that the certificate names")
	flags.StringVar(&opts.Service.Namespace, "namespace", "", "namespace of the Service")
	flags.StringSliceVar(&opts.AllowedNames, allowedNamesFlag, []string{certs.FrontProxyUser},
		`common names that the front proxy may have, as kube-apiserver's flag of this name; "" allows any`)
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	output.AddFlag(cmd, &format)
	return cmd
}

const allowedNamesFlag = "requestheader-allowed-names"

// checkService: both names or none.
func checkService(s certs.Service) error {
	if s.Name == "" && s.Namespace == "" {
		return nil
	}
	return s.Validate()
}

func needPaths(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage.Errorf("expected files or directories to %s, found none; give at least one, such as ./pki", cmd.Name())
	}
	return nil
}

// findingErrors are those findings that decide about the exit code.
func findingErrors(findings []verify.Finding, strict bool) error {
	var errs []error
	for _, f := range findings {
		if f.Severity == verify.Error || strict && f.Severity == verify.Warning {
			errs = append(errs, fmt.Errorf("%s %s: %s; %s", f.ID, f.Object, f.Evidence, f.Fix))
		}
	}
	return errors.Join(errs...)
}

func printVerification(w io.Writer, r *verify.Report, strict bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CERTIFICATE\tCHECKED AS\tSUBJECT\tUNTIL\tRESULT")
	for _, c := range r.Checked {
		as := string(c.Purpose)
		if c.ServerName != "" {
			as += " " + c.ServerName
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Path, as, orDash(c.Subject), timeOrDash(c.NotAfter), result(c.Errors, c.Warnings))
	}
	table.Flush() //nolint:errcheck // as for every print: there is nobody left to tell
	printFindings(w, r.Findings, r.Summary, r.Failed(strict))
}

func result(errors, warnings int) string {
	switch {
	case errors > 0:
		return "ERROR"
	case warnings > 0:
		return "warning"
	}
	return "ok"
}

func printFindings(w io.Writer, findings []verify.Finding, s verify.Summary, failed bool) {
	for _, f := range findings {
		fmt.Fprintf(w, "\n%s %s %s\n", f.Severity, f.ID, f.Object)
		line(w, "found", f.Evidence)
		line(w, "fix", f.Fix)
	}
	verdict := "ok"
	if failed {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\n%s: %d checked, %d errors, %d warnings, %d infos\n", verdict, s.Checked, s.Errors, s.Warnings, s.Infos)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}
