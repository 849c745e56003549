// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"testing"
)

// FuzzRequest: no request from an untrusted sender crashes the CA's side. A request without
// excess asks for no other name and no CA.
func FuzzRequest(f *testing.F) {
	key, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	granted := fullSpec
	for _, s := range []spec{granted, leafSpec("a.b.svc"), leafSpec(), {isCA: true, commonName: "ca"}} {
		request, err := newRequest(s, key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encodeRequest(request))
		f.Add(append([]byte("text\n"), encodeRequest(request)...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := parseRequest(data)
		if err != nil {
			return
		}
		if again, err := parseRequest(encodeRequest(request)); err != nil || !bytes.Equal(again.Raw, request.Raw) {
			t.Errorf("the request came back as another, or with %v", err)
		}
		if s, err := specOf(request); err == nil && s.usage != x509.ExtKeyUsageServerAuth &&
			s.usage != x509.ExtKeyUsageClientAuth {
			t.Errorf("got usage %v, want one of the two", s.usage)
		}
		excess, err := excessOf(request, granted)
		if err != nil || len(excess) > 0 {
			return
		}
		if foreign := forbidden(&x509.Certificate{PermittedDNSDomains: granted.dnsNames}, request.DNSNames, nil); len(
			foreign) > 0 || len(request.URIs) > 0 {
			t.Errorf("the names %q and %v were not noticed", foreign, request.URIs)
		}
	})
}
