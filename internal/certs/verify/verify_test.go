// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
)

func mustVerify(t *testing.T, opts Options, paths ...string) *Report {
	t.Helper()
	if opts.Now.IsZero() {
		opts.Now = epoch
	}
	r, err := Paths(paths, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// summaries returns "ID severity file" for each finding.
func summaries(r *Report) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s", f.ID, f.Severity, filepath.Base(f.Object)))
	}
	return out
}

func TestExamples(t *testing.T) {
	f := newFixture(t)
	for _, ex := range examples {
		t.Run(ex.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && slices.ContainsFunc(ex.want,
				func(finding string) bool { return strings.HasPrefix(finding, "F01 ") }) {
				t.Skip("modes say nothing there")
			}
			dir := filepath.Join(t.TempDir(), ex.dir)
			f.write(dir, ex.files(f))
			r := mustVerify(t, ex.opts, dir)
			byText := cmpopts.SortSlices(func(a, b string) bool { return a < b })
			if diff := cmp.Diff(ex.want, summaries(r), byText, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%+v", diff, r.Findings)
			}
			if !slices.ContainsFunc(r.Findings, func(f catalogue.Finding) bool {
				return strings.Contains(f.Evidence, ex.text)
			}) && ex.text != "" {
				t.Errorf("got %+v, want evidence with %q", r.Findings, ex.text)
			}
			for _, finding := range r.Findings {
				if finding.Evidence == "" || finding.Fix == "" || strings.Contains(finding.Fix, "FILE") ||
					!strings.HasPrefix(finding.Object, dir) {
					t.Errorf("got %+v, want evidence, a fix and a path below %s", finding, dir)
				}
			}
			if len(r.Checked) != 1 {
				t.Fatalf("got %+v, want one certificate", r.Checked)
			}
			// Without ca.crt, the chain cannot be verified, which a finding of severity info
			// reports.
			unchecked := slices.Contains(summaries(r), "C01 info tls.crt")
			if err := accepted(dir, r.Checked[0], ex.opts); err != nil && r.Summary.Errors == 0 && !unchecked {
				t.Errorf("no error was found (%q), but a peer refuses it: %v", summaries(r), err)
			}
		})
	}
}

// accepted repeats the peers' steps on the files: it loads the key pair, verifies the serving
// certificate as kube-aggregator does with a caBundle, and the client certificate as the
// request-header authenticator does.
func accepted(dir string, c Checked, opts Options) error {
	now := opts.Now
	if now.IsZero() {
		now = epoch
	}
	if c.Purpose == Authority || c.Purpose == KeyOnly {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certs.CertFile), filepath.Join(dir, certs.KeyFile))
	if err != nil {
		return err
	}
	bundle, err := os.ReadFile(filepath.Join(dir, certs.BundleFile))
	if err != nil {
		return err
	}
	verify := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	if !verify.Roots.AppendCertsFromPEM(bundle) {
		return errors.New("no certificate in ca.crt")
	}
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		verify.Intermediates.AddCert(cert)
	}
	switch c.Purpose {
	case Serving:
		verify.DNSName = c.ServerName
		verify.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	case FrontProxy, Client:
		verify.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	_, err = pair.Leaf.Verify(verify)
	return err
}

// TestEveryRuleHasExamples: each rule is found in at least one example. A rule without an
// example may not work, nor may one that is always found.
func TestEveryRuleHasExamples(t *testing.T) {
	// Rules that need more than one directory have their own tests.
	shown := map[string]bool{"F03 info": true}
	for _, ex := range examples {
		for _, want := range ex.want {
			shown[strings.Join(strings.Fields(want)[:2], " ")] = true
		}
	}
	var last string
	for _, rule := range Rules() {
		if rule.ID <= last || rule.Meaning == "" || rule.Fix == "" || len(rule.Severities) == 0 {
			t.Errorf("got %+v after %s, want rules in order, complete and without doubles", rule, last)
		}
		last = rule.ID
		for _, severity := range rule.Severities {
			key := fmt.Sprintf("%s %s", rule.ID, severity)
			if !shown[key] {
				t.Errorf("no example shows %s", key)
			}
			delete(shown, key)
		}
	}
	if len(shown) > 0 {
		t.Errorf("examples show %v, which no rule reports", shown)
	}
}

func TestPlainFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("certgen init writes plain files there")
	}
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "serving")
	f.writePlain(dir, goodServing(f))
	if got := summaries(mustVerify(t, Options{}, dir)); !slices.Equal(got, []string{"F03 info tls.crt"}) {
		t.Errorf("got %q, want F03", got)
	}
}

func TestUnreadable(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "serving")
	f.writePlain(dir, goodServing(f).without(certs.KeyFile))
	key := filepath.Join(dir, certs.KeyFile)
	if err := os.Symlink("nowhere", key); err != nil {
		t.Fatal(err)
	}
	if got := summaries(mustVerify(t, Options{}, dir)); !slices.Equal(got, []string{"F02 error tls.key"}) {
		t.Errorf("a link to nowhere: got %q, want F02", got)
	}
	if os.Geteuid() <= 0 {
		return // root can read everything, and Windows has no modes
	}
	f.writePlain(dir, files{"other.crt": {Data: f.serving.CertPEM, Mode: 0}})
	if got := summaries(mustVerify(t, Options{}, filepath.Join(dir, "other.crt"))); !slices.Equal(got,
		[]string{"F02 error other.crt"}) {
		t.Errorf("mode 0: got %q, want F02", got)
	}
}

func TestPathsErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Paths([]string{dir, filepath.Join(dir, "nothing")}, Options{Now: epoch})
	for _, want := range []string{"found no file named *.crt", syscall.Errno(2).Error()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestNoKeyInReport: a report contains no part of a key, even if the key is damaged.
func TestNoKeyInReport(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "serving")
	f.write(dir, goodServing(f).edit(certs.KeyFile, func(b []byte) []byte { return b[len(b)/3:] }))
	r := mustVerify(t, Options{}, dir)
	text := fmt.Sprintf("%+v", r)
	for line := range strings.SplitSeq(string(f.serving.KeyPEM), "\n") {
		if len(line) > 10 && strings.Contains(text, line[len(line)/2:]) {
			t.Errorf("a line of the key is in %s", text)
		}
	}
	if r.Summary.Errors == 0 {
		t.Error("half a key is not an error")
	}
}

func BenchmarkVerify100(b *testing.B) {
	ca, err := certs.NewCA(certs.CAOptions{Name: "bench", Usage: x509.ExtKeyUsageServerAuth,
		PermittedDNS: []string{host}, Now: at(0).now})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for i := range 100 {
		pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{host}})
		if err == nil {
			err = pair.Write(filepath.Join(dir, fmt.Sprint(i), "serving"), certs.Bundle{ca.Certificate})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		r, err := Paths([]string{dir}, Options{Now: epoch})
		if err != nil || len(r.Checked) != 100 || len(r.Findings) > 0 {
			b.Fatalf("got %+v, %v", r, err)
		}
	}
}
