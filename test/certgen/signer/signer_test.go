// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

var service = certs.Service{Name: "widgets", Namespace: "demo"}

// init issues the serving key pair in memory, like certgen renew, with the CA's certificate and
// without its key.
func (r *Server) init(signer certs.RemoteSigner, change func(*certs.InitOptions)) (*certs.Memory, error) {
	store := &certs.Memory{}
	if err := store.Write(certs.ServingCADir, certs.Files{certs.CertFile: {Data: r.CA.CertPEM,
		Mode: 0o600}}); err != nil {
		r.Fatal(err)
	}
	opts := certs.InitOptions{Store: store, Service: service, With: []string{}, Signer: &signer}
	if change != nil {
		change(&opts)
	}
	_, err := certs.Init(r.Context(), opts)
	return store, err
}

func TestRemoteSigner(t *testing.T) {
	r := Start(t, Host{(*exec.Cmd).Start, (&net.Dialer{}).DialContext}, service)
	store, err := r.init(r.Signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.ReadPair(store, certs.ServingDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Certificate.Verify(x509.VerifyOptions{Roots: (certs.Bundle{r.CA.Certificate}).Pool(),
		DNSName: service.ServerName()}); err != nil {
		t.Errorf("the certificate: %v", err)
	}
	for set, files := range store.Sets {
		if _, ok := files[certs.KeyFile]; ok && set != certs.ServingDir {
			t.Errorf("%s holds a key", set)
		}
	}
	stranger, err := newCA(t, "x", x509.ExtKeyUsageClientAuth).IssueClient(certs.ClientOptions{User: "certgen"})
	if err != nil {
		t.Fatal(err)
	}
	// A valid certificate is kept, and the signer is not used.
	gone := r.Signer
	gone.URL = "https://127.0.0.1:1"
	if report, err := certs.Init(t.Context(), certs.InitOptions{Store: store, Service: service, With: []string{},
		Signer: &gone}); err != nil || report.Items[1].Action != certs.Kept {
		t.Errorf("again: %+v, %v; want it kept", report, err)
	}
	for name, tc := range map[string]struct {
		signer func(*certs.RemoteSigner)
		change func(*certs.InitOptions)
		want   string
	}{
		"does not exist": {func(s *certs.RemoteSigner) { s.URL = gone.URL }, nil, "connection refused"},
		"another server": {func(s *certs.RemoteSigner) { s.CAs = certs.Bundle{r.CA.Certificate} }, nil,
			"certificate signed by unknown authority"},
		"an unknown client": {func(s *certs.RemoteSigner) { s.Client = keyPair(t, stranger) }, nil,
			"request signature from https://127.0.0.1:"},
		"both usages": {func(s *certs.RemoteSigner) { s.Profile = "both" }, nil,
			"extended key usages: expected [serverAuth], found [serverAuth clientAuth]"},
		"ten years": {func(s *certs.RemoteSigner) { s.Profile = "long" }, nil, "at most 398 days"},
		"a name that is not": {nil, func(o *certs.InitOptions) { o.DNSNames = []string{"evil.example.com"} },
			"found name constraints"},
		"plain text": {func(s *certs.RemoteSigner) { s.URL = strings.Replace(s.URL, "https", "http", 1) }, nil,
			"expected a URL such as https://"},
		"a group of servers": {func(s *certs.RemoteSigner) { s.URL += ",evil:8888" }, nil,
			"expected a URL such as https://"},
		"without certificate": {func(s *certs.RemoteSigner) { s.Client = tls.Certificate{} }, nil, "signer-cert"},
		"the key is here too": {nil, func(o *certs.InitOptions) {
			if err := o.Store.Write(certs.ServingCADir, r.CA.Files(nil)); err != nil {
				t.Fatal(err)
			}
		}, "and no key"},
		"no CA": {nil, func(o *certs.InitOptions) { o.Store = &certs.Memory{}; o.AllowNewCA = true },
			"expected the certificate of the CA whose key"},
		"expired, and a new one allowed": {nil, func(o *certs.InitOptions) {
			o.AllowNewCA, o.Now = true, func() time.Time { return time.Now().Add(certs.CALifetime + time.Hour) }
		}, "expired at"},
	} {
		t.Run(name, func(t *testing.T) {
			signer := r.Signer
			if tc.signer != nil {
				tc.signer(&signer)
			}
			store, err := r.init(signer, tc.change)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if _, ok := store.Sets[certs.ServingDir]; ok {
				t.Error("something was written")
			}
		})
	}
	// The server itself rejects names that the CA's name constraints would also prevent.
	wide := newCA(t, "wide", x509.ExtKeyUsageServerAuth)
	ca, err := certs.RemoteCA(wide.Certificate, &r.Signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{"evil.example.com"}}); err == nil {
		t.Error("the server signed a name that is not in its list")
	}
	// And a server with another CA than the trusted one is detected.
	if _, err := ca.IssueServing(certs.ServingOptions{DNSNames: service.DNSNames()}); err == nil ||
		!strings.Contains(err.Error(), "signature: ") {
		t.Errorf("another CA's signature: got %v, want it refused", err)
	}
}
