// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

const blockRequest = "CERTIFICATE REQUEST"

var (
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
)

// newRequest makes a PKCS#10 request with the names of s and, for a leaf, its usages.
func newRequest(s spec, key crypto.Signer) (*x509.CertificateRequest, error) {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: s.commonName, Organization: s.groups}, DNSNames: s.dnsNames,
	}
	for _, ip := range s.ips {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	if !s.isCA {
		usage, err := s.usage.OID().MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("make certificate request: %w", err)
		}
		// A CA that copies what is asked for makes the very certificate: digitalSignature, CA:FALSE, one usage.
		for _, ext := range []struct {
			id       asn1.ObjectIdentifier
			critical bool
			value    any
		}{
			{oidKeyUsage, true, asn1.BitString{Bytes: []byte{0x80}, BitLength: 1}},
			{oidBasicConstraints, true, struct{}{}},
			{oidExtKeyUsage, false, []asn1.RawValue{{Tag: asn1.TagOID, Bytes: usage}}},
		} {
			der, err := asn1.Marshal(ext.value)
			if err != nil {
				return nil, fmt.Errorf("make certificate request: %w", err)
			}
			template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: ext.id, Critical: ext.critical, Value: der})
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return x509.ParseCertificateRequest(der)
}

func encodeRequest(r *x509.CertificateRequest) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: r.Raw})
}

// parseRequest reads exactly one request, whose signature shows that the sender has the key.
func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != blockRequest || len(bytes.TrimSpace(rest)) > 0 || bytes.Count(data, pemBegin) != 1 {
		return nil, errors.New("parse certificate request: expected one PEM block CERTIFICATE REQUEST and nothing after it")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("parse certificate request: expected it signed with the key that is in it: %w", err)
	}
	return request, checkStrength(request.PublicKey)
}

// specOf is what a request of newRequest asks for.
func specOf(r *x509.CertificateRequest) (spec, error) {
	usages, err := requestedUsages(r)
	if err != nil {
		return spec{}, err
	}
	s := spec{commonName: r.Subject.CommonName, groups: r.Subject.Organization, dnsNames: r.DNSNames, ips: addresses(r)}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if len(usages) == 1 && usage.OID().EqualASN1OID(usages[0]) {
			s.usage = usage
			return s, nil
		}
	}
	return spec{}, fmt.Errorf("read certificate request: expected one extended key usage, serverAuth or clientAuth, found %v", usages)
}

func requestedUsages(r *x509.CertificateRequest) (usages []asn1.ObjectIdentifier, err error) {
	for _, ext := range r.Extensions {
		if ext.Id.Equal(oidExtKeyUsage) {
			if rest, err := asn1.Unmarshal(ext.Value, &usages); err != nil || len(rest) > 0 {
				return nil, errors.New("read certificate request: its extended key usages cannot be read")
			}
		}
	}
	return usages, nil
}

func addresses(r *x509.CertificateRequest) []netip.Addr {
	var out []netip.Addr
	for _, ip := range r.IPAddresses {
		addr, _ := netip.AddrFromSlice(ip) // 4 or 16 bytes, or it would not have been parsed
		out = append(out, addr.Unmap())
	}
	return out
}

// asksMoreThan lists what the request asks for and s does not grant. What it leaves out is filled in from s.
func asksMoreThan(r *x509.CertificateRequest, s spec) ([]string, error) {
	var out []string
	excess := func(what string, asked, granted []string) {
		for _, name := range asked {
			if !slices.Contains(granted, name) {
				out = append(out, fmt.Sprintf("the request asks for the %s %q", what, name))
			}
		}
	}
	// A server's common name is for people: any of its names will do.
	if cn := r.Subject.CommonName; cn != "" {
		excess("common name", []string{cn}, append([]string{s.commonName}, s.dnsNames...))
	}
	excess("group (O)", r.Subject.Organization, s.groups)
	excess("DNS name", r.DNSNames, s.dnsNames)
	excess("IP address", toStrings(addresses(r)), toStrings(s.ips))
	excess("email address", r.EmailAddresses, nil)
	excess("URI", toStrings(r.URIs), nil)
	for _, name := range r.Subject.Names {
		if oid := name.Type.String(); oid != "2.5.4.3" && oid != "2.5.4.10" {
			excess("subject attribute", []string{oid}, nil)
		}
	}
	usages, err := requestedUsages(r)
	if err != nil {
		return nil, err
	}
	excess("extended key usage", toStrings(usages), []string{s.usage.OID().String()})
	for _, ext := range r.Extensions {
		switch {
		case ext.Id.Equal(oidSubjectAltName), ext.Id.Equal(oidExtKeyUsage):
		case ext.Id.Equal(oidKeyUsage):
			// keyEncipherment and the like are asked for by habit and not granted; the key of a CA is another matter.
			var bits asn1.BitString
			if _, err := asn1.Unmarshal(ext.Value, &bits); err != nil || bits.At(5) == 1 || bits.At(6) == 1 {
				out = append(out, "the request asks for the key usages of a CA")
			}
		case ext.Id.Equal(oidBasicConstraints):
			var basic struct {
				IsCA    bool `asn1:"optional"`
				PathLen int  `asn1:"optional,default:-1"`
			}
			if _, err := asn1.Unmarshal(ext.Value, &basic); err != nil || basic.IsCA {
				out = append(out, "the request asks for a CA")
			}
		default:
			excess("extension", []string{ext.Id.String()}, nil)
		}
	}
	return out, nil
}
