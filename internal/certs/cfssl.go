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

// cfssl's logger is global and writes each serial number to standard error, where only our errors belong. What it
// says is in the errors that its functions return.
func init() { log.Level = log.LevelFatal }

// sign has cfssl sign the key in the request as s asks, and takes nothing else from the request. An issuer without a
// certificate makes a root of the issuer's own key. Only this file and that of the remote signer know cfssl;
// another signer needs only this function, since the result is compared with s in any case.
func sign(s spec, request *x509.CertificateRequest, issuer KeyPair) (*x509.Certificate, error) {
	// One signer per signature: for a root, cfssl's signer stores the new certificate in itself.
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

// policyFor makes the one profile that s needs.
//
// It is the default one, which cfssl takes for every name that it does not know, without a word; cfssl's own default
// allows server and client authentication for a year. Usages that cfssl does not know it ignores, and a certificate
// without any would be good for every purpose: checkIssued refuses it.
func policyFor(s spec) *config.Signing {
	profile := &config.SigningProfile{
		Expiry: time.Minute, // cfssl demands one; signRequestFor says when the certificate ends
		Usage:  cfsslUsages(s),
		// Nothing of a CSR but its key. Without a whitelist cfssl copies names, and a CSR's own basic constraints, into
		// the certificate. CopyExtensions stays off for the same reason: in v1.6 it lets a CSR override usages and
		// names.
		CSRWhitelist: &config.CSRWhitelist{PublicKey: true, PublicKeyAlgorithm: true, SignatureAlgorithm: true},
		// In cfssl a zero path length must be said twice, or it means "no limit".
		CAConstraint: config.CAConstraint{IsCA: s.isCA, MaxPathLen: 0, MaxPathLenZero: s.isCA},
	}
	if s.constraints != nil {
		profile.ExtensionWhitelist = map[string]bool{oidNameConstraints: true}
	}
	return &config.Signing{Default: profile}
}

// cfsslUsages spells the usages of s as cfssl's config.KeyUsage and config.ExtKeyUsage do.
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

// signRequestFor says to cfssl what is in s; all that comes from the request is its key.
func signRequestFor(s spec, request *x509.CertificateRequest) (*signer.SignRequest, error) {
	subject := &signer.Subject{CN: s.commonName}
	for _, group := range s.groups {
		subject.Names = append(subject.Names, csr.Name{O: group})
	}
	order := &signer.SignRequest{
		Request: string(encodeRequest(request)),
		Subject: subject,
		// Never nil: nil would let the names of the CSR through. cfssl guesses the kind of each entry, which
		// is safe for names that normalizeDNSName and netip accepted, and checked afterwards in any case.
		Hosts: append(append([]string{}, s.dnsNames...), s.ips...),
		// Set both: cfssl does not end a leaf with its CA, and rounds to the minute.
		NotBefore: s.notBefore,
		NotAfter:  s.notAfter,
	}
	if s.constraints != nil {
		constrained, err := throwaway(s.constraints)
		if err != nil {
			return nil, err
		}
		for _, ext := range constrained.Extensions { // cfssl's profiles know nothing of it
			order.Extensions = append(order.Extensions, signer.Extension{ID: config.OID(ext.Id), Critical: ext.Critical,
				Value: hex.EncodeToString(ext.Value)})
		}
	}
	return order, nil
}
