// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
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
	c := item.Certificate
	fmt.Fprintf(w, "%-9s %s\n", item.Action, item.Path)
	line(w, "why", item.Reason)
	if item.TrustChanged {
		line(w, "TRUST", "changed: this CA took the place of another")
	}
	line(w, "subject", c.Subject)
	line(w, "names", names(c))
	line(w, "may sign", c.NameConstraints)
	line(w, "until", until(c))
	line(w, "sha256", c.SHA256)
	for _, note := range item.Notes {
		line(w, "note", note)
	}
}

func printRequest(w io.Writer, r *certs.RequestReport) {
	fmt.Fprintf(w, "%-9s %s\n", r.Action, r.Path)
	line(w, "why", r.Reason)
	line(w, "subject", r.Subject)
	line(w, "names", names(certs.CertificateInfo{DNSNames: r.DNSNames, IPAddresses: r.IPAddresses}))
	line(w, "usage", r.ExtKeyUsage)
	line(w, "key type", r.KeyType)
	for _, note := range r.Notes {
		line(w, "note", note)
	}
	printNext(w, r.Next)
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
