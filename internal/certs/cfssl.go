// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/cloudflare/cfssl/config"
	"github.com/cloudflare/cfssl/csr"
	"github.com/cloudflare/cfssl/log"
	"github.com/cloudflare/cfssl/signer"
	"github.com/cloudflare/cfssl/signer/local"
)

// cfssl's global logger writes each serial number to standard error, which is reserved for our
// errors. Nothing is lost: cfssl's functions return the same information as errors.
func init() { log.Level = log.LevelFatal }

// sign signs the key in request with cfssl. All other properties come from s; nothing else is
// taken from the request. If issuer has no certificate, sign returns a root certificate for the
// issuer's own key. Only this file and remote.go use cfssl. Another signer needs to replace only
// this function, because the result is always compared with s.
func sign(s spec, request *x509.CertificateRequest, issuer KeyPair) (*x509.Certificate, error) {
	// Use a new signer for each signature: for a root, cfssl's signer stores the new certificate
	// in itself.
	cfssl, err := local.NewSigner(issuer.Key, issuer.Certificate, signer.DefaultSigAlgo(issuer.Key), policyFor(s))
	if err != nil {
		return nil, fmt.Errorf("create cfssl signer: %w", err)
	}
	order, err := signRequestFor(s, request)
	if err != nil {
		return nil, err
	}
	certPEM, err := cfssl.Sign(*order)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return nil, err
	}
	return cert, s.checkIssued(cert, cmp.Or(issuer.Certificate, cert), request.PublicKey)
}

// policyFor returns a signing policy with the single profile that s needs.
//
// It is the default profile because cfssl silently falls back to that for every unknown profile
// name; cfssl's own default allows server and client authentication for a year. cfssl also
// ignores usages that it does not know. A certificate without usages would be valid for every
// purpose, so checkIssued rejects it.
func policyFor(s spec) *config.Signing {
	profile := &config.SigningProfile{
		Expiry: time.Minute, // required by cfssl; signRequestFor sets the real expiry
		Usage:  cfsslUsages(s),
		// Take nothing but the key from a CSR. Without a whitelist, cfssl copies the CSR's names
		// and basic constraints into the certificate. CopyExtensions stays off for the same
		// reason: in v1.6 it lets a CSR override usages and names.
		CSRWhitelist: &config.CSRWhitelist{PublicKey: true, PublicKeyAlgorithm: true, SignatureAlgorithm: true},
		// cfssl needs both fields for a zero path length; MaxPathLen 0 alone means "no limit".
		CAConstraint: config.CAConstraint{IsCA: s.isCA, MaxPathLen: 0, MaxPathLenZero: s.isCA},
	}
	if s.constraints != nil {
		profile.ExtensionWhitelist = map[string]bool{oidNameConstraints: true}
	}
	return &config.Signing{Default: profile}
}

// cfsslUsages returns the usages of s as cfssl's config.KeyUsage and config.ExtKeyUsage spell
// them.
func cfsslUsages(s spec) []string {
	out := []string{"digital signature"}
	if s.isCA {
		out = []string{"cert sign", "crl sign"}
	}
	names := map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server auth",
		x509.ExtKeyUsageClientAuth: "client auth"}
	for _, usage := range s.extKeyUsages() {
		out = append(out, names[usage])
	}
	return out
}

// signRequestFor returns cfssl's sign request for s. Only the key comes from request.
func signRequestFor(s spec, request *x509.CertificateRequest) (*signer.SignRequest, error) {
	subject := &signer.Subject{CN: s.commonName}
	for _, group := range s.groups {
		subject.Names = append(subject.Names, csr.Name{O: group})
	}
	order := &signer.SignRequest{
		Request: string(encodeRequest(request)),
		Subject: subject,
		// Hosts must not be nil: nil would let the names in the CSR through. cfssl guesses the
		// type of each entry. That is safe for names that normalizeDNSName and netip have
		// accepted, and checkIssued compares the result with s in any case.
		Hosts: append(append([]string{}, s.dnsNames...), s.ips...),
		// Set both times: cfssl does not limit a leaf to its CA's lifetime, and it rounds to the
		// minute.
		NotBefore: s.notBefore,
		NotAfter:  s.notAfter,
	}
	if s.constraints != nil {
		constrained, err := throwaway(s.constraints)
		if err != nil {
			return nil, err
		}
		for _, ext := range constrained.Extensions { // cfssl's profiles do not support name constraints
			order.Extensions = append(order.Extensions, signer.Extension{ID: config.OID(ext.Id), Critical: ext.Critical,
				Value: hex.EncodeToString(ext.Value)})
		}
	}
	return order, nil
}
