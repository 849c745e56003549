// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// line writes "  label     value", or nothing if the value is empty.
func line(w io.Writer, label, value string) {
	if value != "" {
		fmt.Fprintf(w, "  %-12s %s\n", label, value)
	}
}

// table writes the header and one row of cells for each item, aligned in columns.
func table[T any](w io.Writer, header string, items []T, cells func(T) []string) {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, header)
	for _, item := range items {
		fmt.Fprintln(columns, strings.Join(cells(item), "\t"))
	}
	columns.Flush() //nolint:errcheck // a failed print cannot be reported
}

// show runs do and prints its report, including the items that were completed before an error.
func (env environment) show(do func() (*certs.Report, error)) error {
	report, err := do()
	if report == nil || err != nil && len(report.Items) == 0 {
		return err
	}
	return errors.Join(err, env.format.Print(env.stdout, report, func(w io.Writer) { printReport(w, report) }))
}

func printReport(w io.Writer, r *certs.Report) {
	if r.DryRun {
		fmt.Fprint(w, "Dry run: nothing was written. In a real run, serial numbers, fingerprints and names of new "+
			"CAs differ.\n\n")
	}
	for _, item := range r.Items {
		printItem(w, item)
	}
	if len(r.Next) > 0 {
		fmt.Fprintln(w, "\nNext steps:\n  "+strings.Join(r.Next, "\n  "))
	}
}

// printItem prints the action on an item, its reason, and the details of the certificate.
func printItem(w io.Writer, item certs.Item) {
	fmt.Fprintf(w, "%-9s %s\n", item.Action, item.Path)
	line(w, "reason", item.Reason)
	if item.TrustChanged {
		line(w, "TRUST", "changed: this CA replaced another CA")
	}
	if c := item.Certificate; c != nil {
		line(w, "subject", c.Subject)
		line(w, "names", names(c.RequestInfo, c.EmailAddresses, c.URIs))
		line(w, "can sign", c.NameConstraints)
		line(w, "expires", fmt.Sprintf("%s (%d days left, renew at %s)", c.NotAfter.Format(time.RFC3339), c.DaysLeft,
			c.RenewAt.Format(time.RFC3339)))
		line(w, "sha256", c.SHA256)
	}
	if r := item.Request; r != nil {
		line(w, "subject", r.Subject)
		line(w, "names", names(*r, nil, nil))
		line(w, "usage", strings.Join(r.ExtKeyUsages, ", "))
		line(w, "key type", r.KeyType)
	}
	for _, note := range item.Notes {
		line(w, "note", note)
	}
}

func names(r certs.RequestInfo, emails, uris []string) string {
	var out []string
	for _, kind := range []struct {
		prefix string
		names  []string
	}{{"DNS:", r.DNSNames}, {"IP:", r.IPAddresses}, {"email:", emails}, {"URI:", uris}} {
		for _, name := range kind.names {
			out = append(out, kind.prefix+name)
		}
	}
	return strings.Join(out, ", ")
}
