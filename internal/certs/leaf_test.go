// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestServingLeafVerifiesAsInKubeAggregator(t *testing.T) {
	names := append(widgets.DNSNames(), "*.widgets.demo.svc", "widgets.example.com")
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: names})
	cert := issueServing(t, ca, names...).Certificate
	for name, ok := range map[string]bool{
		"widgets.demo.svc":               true,
		"widgets.demo.svc.cluster.local": true,
		"widgets.demo":                   true,
		"widgets":                        true,
		"pod-0.widgets.demo.svc":         true,
		"widgets.example.com":            true,
		"gadgets.demo.svc":               false,
		"widgets.other.svc":              false,
		"10.0.0.1":                       false,
	} {
		if err := verifyServing(cert, ca.CertPEM, name); (err == nil) != ok {
			t.Errorf("verify as %s: got %v, want success %v", name, err, ok)
		}
	}
	if err := verifyClient(cert, ca.CertPEM); err == nil {
		t.Error("serving certificate verifies as a client's")
	}
	if err := verifyServing(cert, newServingCA(t).CertPEM, "widgets.demo.svc"); err == nil {
		t.Error("serving certificate verifies with another CA")
	}
}

func TestFrontProxyClientVerifiesAsInRequestHeader(t *testing.T) {
	ca := newClientCA(t)
	pair, err := ca.IssueClient(ClientOptions{User: FrontProxyUser})
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyClient(pair.Certificate, ca.CertPEM); err != nil {
		t.Errorf("verify client certificate: %v", err)
	}
	if got := pair.Certificate.Subject.String(); got != "CN=front-proxy-client" {
		t.Errorf("got subject %s, want the common name and no group", got)
	}
	if err := verifyServing(pair.Certificate, ca.CertPEM, ""); err == nil {
		t.Error("client certificate verifies as a server's")
	}
}

// TestStolenCAKeyIsLimited: any certificate that a thief signs with a CA's key is limited to
// the CA's purpose.
func TestStolenCAKeyIsLimited(t *testing.T) {
	serving := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: widgets.DNSNames()})
	client := newClientCA(t)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

	forgedClient := forge(t, serving.KeyPair, &x509.Certificate{Subject: pkix.Name{CommonName: FrontProxyUser},
		ExtKeyUsage: both})
	wantError(t, verifyClient(forgedClient.Certificate, serving.CertPEM), "incompatible key usage")

	forgedServer := forge(t, client.KeyPair, &x509.Certificate{DNSNames: []string{"widgets.demo.svc"},
		ExtKeyUsage: both})
	wantError(t, verifyServing(forgedServer.Certificate, client.CertPEM, "widgets.demo.svc"), "incompatible key usage")

	foreign := forge(t, serving.KeyPair, &x509.Certificate{DNSNames: []string{"kubernetes.default.svc"},
		ExtKeyUsage: both})
	wantError(t, verifyServing(foreign.Certificate, serving.CertPEM, "kubernetes.default.svc"), "not permitted")

	address := forge(t, serving.KeyPair, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
		ExtKeyUsage: both})
	wantError(t, verifyServing(address.Certificate, serving.CertPEM, "10.0.0.1"), "excluded")

	subCA := forge(t, serving.KeyPair, &x509.Certificate{Subject: pkix.Name{CommonName: "sub"},
		BasicConstraintsValid: true, IsCA: true})
	below := forge(t, subCA, &x509.Certificate{DNSNames: []string{"widgets.demo.svc"}, ExtKeyUsage: both})
	_, err := below.Certificate.Verify(x509.VerifyOptions{
		Roots: Bundle{serving.Certificate}.Pool(), Intermediates: Bundle{subCA.Certificate}.Pool(), CurrentTime: epoch,
	})
	wantError(t, err, "too many intermediates")
}

func TestLeafExpiresWithCA(t *testing.T) {
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, Lifetime: 48 * time.Hour})
	leaf := issueServing(t, ca, "a.b.svc").Certificate
	if !leaf.NotAfter.Equal(ca.Certificate.NotAfter) {
		t.Errorf("leaf ends %s, its CA %s; want the same", leaf.NotAfter, ca.Certificate.NotAfter)
	}
	if leaf.NotBefore.Before(ca.Certificate.NotBefore) {
		t.Errorf("leaf begins %s, before its CA", leaf.NotBefore)
	}
	ca.now = at(epoch.Add(49 * time.Hour))
	_, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}})
	wantError(t, err, "expired at")
}

func TestCAIssuesForItsOwnUsageOnly(t *testing.T) {
	_, err := newClientCA(t).IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}})
	wantError(t, err, "expected a CA for [serverAuth], found one for [clientAuth]")
	_, err = newServingCA(t).IssueClient(ClientOptions{User: "jane"})
	wantError(t, err, "expected a CA for [clientAuth], found one for [serverAuth]")
}

func TestServingOptions(t *testing.T) {
	ca := newCA(t, CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: []string{"a.b.svc"}})
	for name, tc := range map[string]struct {
		opts ServingOptions
		want string
	}{
		"no name":         {ServingOptions{}, "at least one DNS name or IP address"},
		"empty name":      {ServingOptions{DNSNames: []string{""}}, "an empty value; remove it"},
		"port":            {ServingOptions{DNSNames: []string{"a.b.svc:443"}}, "remove the port"},
		"too long a life": {ServingOptions{DNSNames: []string{"a.b.svc"}, Lifetime: MaxLeafLifetime + 1}, "398 days"},
		"foreign name":    {ServingOptions{DNSNames: []string{"a.b.svc", "c.d.svc"}}, `name "c.d.svc"`},
		"excluded address": {ServingOptions{DNSNames: []string{"a.b.svc"}, IPs: []string{"10.0.0.1"}},
			`name "10.0.0.1"`},
		"name like another": {ServingOptions{DNSNames: []string{"xa.b.svc"}}, `name "xa.b.svc"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ca.IssueServing(tc.opts)
			wantError(t, err, tc.want)
			for _, e := range Flatten(err) {
				if invalid := (*InvalidError)(nil); !errors.As(e, &invalid) {
					t.Errorf("got %T, want *InvalidError", e)
				}
			}
		})
	}
}

func TestServingCommonName(t *testing.T) {
	long := Service{Name: strings.Repeat("s", 63), Namespace: strings.Repeat("n", 63)}
	for want, names := range map[string][]string{
		"widgets.demo.svc": widgets.DNSNames(),
		long.Name:          long.DNSNames(), // 131 characters exceed the limit of a common name
	} {
		if got := issueServing(t, newServingCA(t), names...).Certificate.Subject.CommonName; got != want {
			t.Errorf("got common name %s, want %s", got, want)
		}
	}
}

func TestClientOptions(t *testing.T) {
	ca := newClientCA(t)
	masters := ClientOptions{User: "admin", Groups: []string{"system:masters"}}
	for name, tc := range map[string]struct {
		opts ClientOptions
		want string
	}{
		"no user":        {ClientOptions{}, `user ""`},
		"long user":      {ClientOptions{User: strings.Repeat("x", 65)}, "at most 64"},
		"control":        {ClientOptions{User: "a\nb"}, "control characters"},
		"empty group":    {ClientOptions{User: "a", Groups: []string{""}}, `group ""`},
		"spaced group":   {ClientOptions{User: "a", Groups: []string{"system:masters "}}, "space at its ends"},
		"system:masters": {masters, "allow it explicitly with --allow-system-masters"},
		"long life":      {ClientOptions{User: "a", Lifetime: 400 * 24 * time.Hour}, "398 days"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ca.IssueClient(tc.opts)
			wantError(t, err, tc.want)
		})
	}
	masters.AllowSystemMasters = true
	pair, err := ca.IssueClient(masters)
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.Certificate.Subject.String(); got != "CN=admin,O=system:masters" {
		t.Errorf("got subject %s", got)
	}
}
