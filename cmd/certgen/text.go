// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/output"
)

// line writes "  label     value" and leaves empty values out.
func line(w io.Writer, label, value string) {
	if value != "" {
		fmt.Fprintf(w, "  %-12s %s\n", label, value)
	}
}

// table writes a row of cells for each item, in columns.
func table[T any](w io.Writer, header string, items []T, cells func(T) []string) {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, header)
	for _, item := range items {
		fmt.Fprintln(columns, strings.Join(cells(item), "\t"))
	}
	columns.Flush() //nolint:errcheck // as for every print: there is nobody left to tell
}

// show prints what a command did, unless it failed.
func show[T any](env environment, format output.Format, report T, err error, text func(io.Writer, T)) error {
	if err != nil {
		return err
	}
	return format.Print(env.stdout, report, func(w io.Writer) { text(w, report) })
}

func printReport(w io.Writer, r *certs.InitReport) {
	if r.DryRun {
		fmt.Fprint(w, "Dry run: nothing was written. This is what would be done; serial numbers, fingerprints and names of new CAs would differ.\n\n")
	}
	for _, item := range r.Items {
		printItem(w, item)
	}
	printNext(w, r.Next)
}

func printIssued(w io.Writer, r *certs.IssueReport) {
	printItem(w, r.Item)
	printNext(w, r.Next)
}

func printItem(w io.Writer, item certs.Item) {
	c, trust := item.Certificate, ""
	if item.TrustChanged {
		trust = "changed: this CA took the place of another"
	}
	printDone(w, item.Action, item.Path, item.Reason, item.Notes, [][2]string{
		{"TRUST", trust}, {"subject", c.Subject}, {"names", names(c)}, {"may sign", c.NameConstraints}, {"until", until(c)}, {"sha256", c.SHA256},
	})
}

func printRequest(w io.Writer, r *certs.RequestReport) {
	asked := names(certs.CertificateInfo{DNSNames: r.DNSNames, IPAddresses: r.IPAddresses})
	printDone(w, r.Action, r.Path, r.Reason, r.Notes, [][2]string{
		{"subject", r.Subject}, {"names", asked}, {"usage", r.ExtKeyUsage}, {"key type", r.KeyType},
	})
	printNext(w, r.Next)
}

// printDone says what was done about what, and why, with what is known of it and what is to be known.
func printDone(w io.Writer, action certs.Action, path, reason string, notes []string, details [][2]string) {
	fmt.Fprintf(w, "%-9s %s\n", action, path)
	line(w, "why", reason)
	for _, detail := range details {
		line(w, detail[0], detail[1])
	}
	for _, note := range notes {
		line(w, "note", note)
	}
}

func printNext(w io.Writer, commands []string) {
	fmt.Fprintln(w, "\nnext")
	for _, command := range commands {
		fmt.Fprintln(w, "  "+command)
	}
}

func names(c certs.CertificateInfo) string {
	var out []string
	for _, kind := range []struct {
		prefix string
		names  []string
	}{{"DNS:", c.DNSNames}, {"IP:", c.IPAddresses}, {"email:", c.EmailAddresses}, {"URI:", c.URIs}} {
		for _, name := range kind.names {
			out = append(out, kind.prefix+name)
		}
	}
	return strings.Join(out, ", ")
}

func until(c certs.CertificateInfo) string {
	return fmt.Sprintf("%s (%d days left, renew from %s)", c.NotAfter.Format(time.RFC3339), c.DaysLeft, c.RenewAt.Format(time.RFC3339))
}
