// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAcceptReportsAllDifferences: Accept reports all differences from the request at once and
// changes nothing.
func TestAcceptReportsAllDifferences(t *testing.T) {
	from := elsewhere(t)
	serving, err := ReadKeyPair(filepath.Join(from, ServingCADir))
	if err != nil {
		t.Fatal(err)
	}
	names, usages := widgets.DNSNames(), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	right := x509.Certificate{DNSNames: names, ExtKeyUsage: usages, KeyUsage: x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true}
	right.Subject.CommonName = "widgets.demo.svc"
	for name, tc := range map[string]struct {
		change func(*x509.Certificate, *AcceptOptions)
		want   []string
	}{
		"nothing": {func(*x509.Certificate, *AcceptOptions) {}, nil},
		"both usages": {func(c *x509.Certificate, _ *AcceptOptions) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}, []string{"extended key usages: expected [serverAuth]"}},
		"all at once": {func(c *x509.Certificate, _ *AcceptOptions) {
			c.DNSNames, c.IsCA, c.Subject.Organization = names[1:], true, []string{"system:masters"}
		}, []string{"organizations: expected [], found [system:masters]", "DNS names: expected", "CA: expected false",
			"number of subject attributes"}},
		"expired": {func(c *x509.Certificate, _ *AcceptOptions) {
			c.NotBefore, c.NotAfter = epoch.Add(-day), epoch.Add(-time.Hour)
		}, []string{"expired at"}},
		"not yet valid": {func(c *x509.Certificate, _ *AcceptOptions) {
			c.NotBefore, c.NotAfter = epoch.Add(day), epoch.Add(2*day)
		}, []string{"verification failed"}},
		"too long": {func(c *x509.Certificate, _ *AcceptOptions) {
			c.NotBefore, c.NotAfter = epoch,
				epoch.Add(400*day)
		}, []string{"validity: expected at most 398 days"}},
		"long, allowed": {func(c *x509.Certificate, o *AcceptOptions) {
			c.NotBefore, c.NotAfter, o.AllowLongLived = epoch, epoch.Add(400*day), true
		}, nil},
		"outlives CA": {func(c *x509.Certificate, o *AcceptOptions) {
			c.NotBefore, c.NotAfter, o.AllowLongLived = epoch, epoch.Add(2*CALifetime), true
		}, []string{"after its CA at"}},
		"CA of another": {func(_ *x509.Certificate, o *AcceptOptions) {
			o.CAFile = filepath.Join(from, KonnectivityAgentCADir, CertFile)
		}, []string{"signed by CN=widgets-serving-ca@"}},
		"CA for clients": {func(_ *x509.Certificate, o *AcceptOptions) {
			o.CAFile = filepath.Join(from, FrontProxyCADir, CertFile)
		}, []string{"expected a CA for [serverAuth]", "signed by"}},
		"a leaf as CA": {func(_ *x509.Certificate, o *AcceptOptions) {
			o.CAFile = filepath.Join(from, ServingDir, CertFile)
		}, []string{"expected a CA certificate", "signed by"}},
		"no CA": {func(_ *x509.Certificate, o *AcceptOptions) { o.CAFile = "" },
			[]string{"set --ca"}},
		"CA file gone": {func(_ *x509.Certificate, o *AcceptOptions) { o.CAFile = "nowhere" },
			[]string{"expected a readable file: " + notFound}},
		"two in a file": {func(_ *x509.Certificate, o *AcceptOptions) { o.CertFile = "chain" },
			[]string{"expected one, found 2"}},
		"other key": {func(_ *x509.Certificate, o *AcceptOptions) {
			o.CertFile = filepath.Join(from, ServingDir, CertFile)
		}, []string{"expected the key of the pending request, found another"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			opts := initOptions(dir, epoch)
			request, key, err := readPending(filepath.Dir(mustRequest(t, opts, ServingDir).Path))
			if err != nil {
				t.Fatal(err)
			}
			template := right
			accept := AcceptOptions{Dir: dir, Name: ServingDir, CertFile: filepath.Join(dir, "cert.crt"),
				CAFile: filepath.Join(from, ServingCADir, CertFile), Now: at(epoch)}
			tc.change(&template, &accept)
			pair := forgeWithKey(t, *serving, &template, key)
			data := pair.CertPEM
			if accept.CertFile == "chain" {
				accept.CertFile = filepath.Join(dir, "cert.crt")
				data = append(data, serving.CertPEM...)
			}
			if err := os.WriteFile(filepath.Join(dir, "cert.crt"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err = Accept(t.Context(), accept)
			if tc.want == nil {
				if got, readErr := ReadKeyPair(filepath.Join(dir, ServingDir)); err != nil || readErr != nil ||
					!SamePublicKey(got.Certificate.PublicKey, request.PublicKey) {
					t.Errorf("got %v, %v; want the pair in use", err, readErr)
				}
				return
			}
			for _, want := range tc.want {
				wantError(t, err, want)
			}
			if len(Flatten(err)) != len(tc.want) {
				t.Errorf("got %q, want %d reasons", Flatten(err), len(tc.want))
			}
			if _, ok := errors.AsType[*RefusedError](err); !ok {
				t.Errorf("got %v, want *RefusedError", err)
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("a refusal changed files:\n%s", diff)
			}
		})
	}
}

func TestAcceptRejectsOtherCA(t *testing.T) {
	from, dir := elsewhere(t), t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	path := mustRequest(t, initOptions(dir, epoch), ServingDir).Path
	cert := signPending(t, path, filepath.Join(from, ServingCADir), nil)
	accept := AcceptOptions{Dir: dir, Name: ServingDir, CertFile: cert,
		CAFile: filepath.Join(from, ServingCADir, CertFile), Now: at(epoch)}
	_, err := Accept(t.Context(), accept)
	wantError(t, err, "to change the CA, move "+filepath.Join(dir, ServingCADir)+" away first")

	// The key of a CA whose certificate is lost must not be combined with another certificate.
	remove(ServingCADir+"/..data/tls.crt")(t, dir)
	before := contents(t, dir)
	_, err = Accept(t.Context(), accept)
	wantError(t, err, "expected the certificate that matches the key")
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("a refusal changed files:\n%s", diff)
	}
	_, err = Accept(t.Context(), AcceptOptions{Dir: dir, Name: FrontProxyClientDir, CertFile: cert, Now: at(epoch)})
	wantError(t, err, "expected a pending request, found none; create one with certgen request front-proxy-client")
}
