// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
)

// SignOptions describes what a CA grants for a request. DNSNames and IPs select a server
// certificate, User and Groups a client certificate.
type SignOptions struct {
	RequestFile string // PKCS#10, PEM
	CA          string // directory with tls.crt and tls.key, or NAME.crt with NAME.key beside it
	Out         string // file for the certificate

	DNSNames, IPs      []string
	User               string
	Groups             []string
	AllowSystemMasters bool
	Lifetime           time.Duration // 0 means LeafLifetime
	AllowLongLived     bool
	Now                func() time.Time // nil means time.Now
}

// SignRequest signs the key of a request with the CA in opts.CA. Names and usages come from the
// options, never from the request. If the request asks for more, SignRequest returns a
// *RefusedError for each excess property. Invalid options return *InvalidErrors. An existing
// file at Out is never overwritten.
func SignRequest(opts SignOptions) (*Report, error) {
	s, err := opts.spec()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(opts.RequestFile)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: fmt.Sprintf("expected a certificate request: %v",
			errors.Unwrap(err))}
	}
	request, err := parseRequest(data)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: err.Error()}
	}
	excess, err := excessOf(request, s)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: err.Error()}
	}
	var errs []error
	for _, reason := range excess {
		errs = append(errs, &RefusedError{Path: opts.RequestFile, Reason: reason +
			", which the flags do not grant; add a flag, or create a request without it"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ca, err := ReadCA(opts.CA, opts.Now)
	if err != nil {
		return nil, err
	}
	if cn := request.Subject.CommonName; slices.Contains(s.dnsNames, cn) && len(cn) <= maxCommonName {
		s.commonName = cn
	}
	cert, err := ca.signRequest(s, request)
	if err != nil {
		return nil, err
	}
	if err := CreateFile(opts.Out, File{Bundle{cert}.PEM(), certMode}); err != nil {
		return nil, err
	}
	item := Item{Name: s.commonName, Path: opts.Out, Action: Made, Reason: "requested by " + opts.RequestFile,
		Certificate: new(Describe(cert, ca.now()))}
	if cert.NotAfter.Equal(ca.Certificate.NotAfter) {
		item.note("expires together with its CA: rotate the CA first")
	}
	report := NewReport("SignReport", item)
	report.Next = []string{"certgen verify " + opts.Out}
	return report, nil
}

func (o SignOptions) spec() (spec, error) {
	server, client := len(o.DNSNames)+len(o.IPs) > 0, o.User != "" || len(o.Groups) > 0
	var s spec
	var err error
	switch {
	case server == client:
		err = &InvalidError{"user", o.User,
			"expected either --dns and --ip, for a server, or --user and --group, for a client; a certificate is " +
				"not for both"}
	case server:
		s, err = ServingOptions{DNSNames: o.DNSNames, IPs: o.IPs, Lifetime: o.Lifetime,
			AllowLongLived: o.AllowLongLived}.spec()
	default:
		s, err = ClientOptions{
			User: o.User, Groups: o.Groups, AllowSystemMasters: o.AllowSystemMasters, Lifetime: o.Lifetime,
			AllowLongLived: o.AllowLongLived,
		}.spec()
	}
	return s, errors.Join(
		Require("ca", o.CA, "the CA: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key "+
			"beside it"),
		Require("out", o.Out, "a file for the certificate"), err)
}

// ReadCA reads a CA from the files that ReadKeyPair reads and checks it as ParseCA does. All
// errors are *RefusedError.
func ReadCA(path string, now func() time.Time) (*CA, error) {
	pair, err := ReadKeyPair(path)
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: "expected a CA: " + err.Error()}
	}
	ca, err := ParseCA(pair.CertPEM, pair.KeyPEM, now)
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: err.Error()}
	}
	return ca, nil
}

const blockRequest = "CERTIFICATE REQUEST"

// requestExtensions are the extensions that excessOf can evaluate.
var requestExtensions = []string{
	"2.5.29.15", // key usage
	"2.5.29.17", // subject alternative name
	"2.5.29.19", // basic constraints
	"2.5.29.37", // extended key usage
}

// newRequest returns a PKCS#10 request with the names of s and, for a leaf, its usages.
func newRequest(s spec, key crypto.Signer) (*x509.CertificateRequest, error) {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: s.commonName, Organization: s.groups}, DNSNames: s.dnsNames,
	}
	for _, ip := range s.ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if !s.isCA {
		// A CA that copies the requested extensions issues the wanted certificate:
		// digitalSignature, CA:FALSE, one usage.
		likeIt, err := throwaway(&x509.Certificate{KeyUsage: s.keyUsage(), ExtKeyUsage: s.extKeyUsages(),
			BasicConstraintsValid: true})
		if err != nil {
			return nil, err
		}
		template.ExtraExtensions = likeIt.Extensions
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	return x509.ParseCertificateRequest(der)
}

// throwaway returns a certificate like template, signed by a throwaway key. It is needed because
// crypto/x509 encodes and decodes extensions only in certificates.
func throwaway(template *x509.Certificate) (*x509.Certificate, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("encode extensions: %w", err)
	}
	return x509.ParseCertificate(der)
}

func encodeRequest(r *x509.CertificateRequest) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: r.Raw})
}

// parseRequest parses data that contains exactly one request. It checks the request's signature,
// which proves that the sender has the key, and the key's strength.
func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != blockRequest || len(bytes.TrimSpace(rest)) > 0 ||
		bytes.Count(data, pemBegin) != 1 {
		return nil, errors.New(
			"parse certificate request: expected one PEM block CERTIFICATE REQUEST and nothing after it")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("parse certificate request: expected a signature by the key in the request: %w", err)
	}
	return request, checkStrength(request.PublicKey)
}

// specOf returns the spec of a request that newRequest created. It returns an error unless the
// request has exactly one extended key usage, serverAuth or clientAuth.
func specOf(r *x509.CertificateRequest) (spec, error) {
	requested, err := throwaway(&x509.Certificate{ExtraExtensions: r.Extensions})
	if err != nil {
		return spec{}, err
	}
	s := spec{commonName: r.Subject.CommonName, groups: r.Subject.Organization, dnsNames: r.DNSNames,
		ips: toStrings(r.IPAddresses)}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if slices.Equal(usageIDs(requested), []string{usage.OID().String()}) {
			s.usage = usage
			return s, nil
		}
	}
	return spec{}, fmt.Errorf(
		"read certificate request: expected one extended key usage, serverAuth or clientAuth, found %v",
		usageIDs(requested))
}

// usageIDs returns the OIDs of the extended key usages.
func usageIDs(cert *x509.Certificate) []string {
	out := toStrings(cert.UnknownExtKeyUsage)
	for _, usage := range cert.ExtKeyUsage {
		out = append(out, usage.OID().String())
	}
	return out
}

// excessOf returns what the request asks for but s does not grant. Properties that the request
// omits are not an excess; they come from s.
func excessOf(r *x509.CertificateRequest, s spec) ([]string, error) {
	var out []string
	excess := func(what string, requested, granted []string) {
		for _, name := range requested {
			if !slices.Contains(granted, name) {
				out = append(out, fmt.Sprintf("the request contains the %s %q", what, name))
			}
		}
	}
	// A server's common name is informational: any of its names is accepted, and so is none.
	excess("common name", []string{r.Subject.CommonName}, append([]string{"", s.commonName}, s.dnsNames...))
	excess("group (O)", r.Subject.Organization, s.groups)
	excess("DNS name", r.DNSNames, s.dnsNames)
	excess("IP address", toStrings(r.IPAddresses), s.ips)
	excess("email address", r.EmailAddresses, nil)
	excess("URI", toStrings(r.URIs), nil)
	for _, name := range r.Subject.Names {
		// common name and organization
		excess("subject attribute", []string{name.Type.String()}, []string{"2.5.4.3", "2.5.4.10"})
	}
	requested, err := throwaway(&x509.Certificate{ExtraExtensions: r.Extensions})
	if err != nil {
		return nil, err
	}
	excess("extended key usage", usageIDs(requested), []string{s.usage.OID().String()})
	// Clients often request usages such as keyEncipherment by default; these are ignored. The
	// key usages of a CA are an excess.
	if requested.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		out = append(out, "the request contains the key usages of a CA")
	}
	if requested.IsCA {
		out = append(out, "the request contains CA:TRUE")
	}
	for _, ext := range r.Extensions {
		excess("extension", []string{ext.Id.String()}, requestExtensions)
	}
	return out, nil
}
