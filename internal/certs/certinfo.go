// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"math"
	"time"
)

// CertificateInfo describes a certificate for people and scripts. It contains no secrets.
type CertificateInfo struct {
	RequestInfo
	Issuer             string    `json:"issuer"`
	Serial             string    `json:"serial"` // hexadecimal
	EmailAddresses     []string  `json:"emailAddresses,omitempty"`
	URIs               []string  `json:"uris,omitempty"`
	CA                 bool      `json:"ca"`
	PathLength         *int      `json:"pathLength,omitempty"` // of a CA; nil means no limit
	KeyUsages          []string  `json:"keyUsages"`
	NameConstraints    string    `json:"nameConstraints,omitempty"`
	SignatureAlgorithm string    `json:"signatureAlgorithm"`
	NotBefore          time.Time `json:"notBefore"`
	NotAfter           time.Time `json:"notAfter"`
	RenewAt            time.Time `json:"renewAt"`
	ResidualSeconds    int64     `json:"residualSeconds"` // negative once expired
	DaysLeft           int       `json:"daysLeft"`        // whole days, rounded down
	SHA256             string    `json:"sha256"`          // of the DER encoding
	SubjectKeyID       string    `json:"subjectKeyID,omitempty"`
	AuthorityKeyID     string    `json:"authorityKeyID,omitempty"`
}

// RequestInfo is the part of the description that requests and certificates share: the subject,
// names, usages and key type.
type RequestInfo struct {
	Subject      string   `json:"subject"`
	DNSNames     []string `json:"dnsNames,omitempty"`
	IPAddresses  []string `json:"ipAddresses,omitempty"`
	ExtKeyUsages []string `json:"extKeyUsages"` // empty means any
	KeyType      string   `json:"keyType"`
}

// Describe returns the description of cert at time now.
func Describe(cert *x509.Certificate, now time.Time) CertificateInfo {
	// Certificates store whole seconds. Without truncation, a new certificate would show one day
	// less than its requested lifetime.
	left := cert.NotAfter.Sub(now.Truncate(time.Second))
	info := CertificateInfo{
		RequestInfo: RequestInfo{
			Subject: cert.Subject.String(), DNSNames: cert.DNSNames, IPAddresses: toStrings(cert.IPAddresses),
			ExtKeyUsages: extKeyUsageNames(cert.ExtKeyUsage, cert.UnknownExtKeyUsage), KeyType: keyType(cert.PublicKey),
		},
		Issuer:             cert.Issuer.String(),
		Serial:             cert.SerialNumber.Text(16),
		EmailAddresses:     cert.EmailAddresses,
		URIs:               toStrings(cert.URIs),
		CA:                 cert.IsCA,
		KeyUsages:          keyUsageNames(cert.KeyUsage),
		SignatureAlgorithm: cert.SignatureAlgorithm.String(),
		NotBefore:          cert.NotBefore.UTC(),
		NotAfter:           cert.NotAfter.UTC(),
		RenewAt:            RenewAt(cert).UTC().Truncate(time.Second),
		ResidualSeconds:    int64(left / time.Second),
		DaysLeft:           int(math.Floor(left.Hours() / 24)),
		SHA256:             Fingerprint(cert),
		SubjectKeyID:       hex.EncodeToString(cert.SubjectKeyId),
		AuthorityKeyID:     hex.EncodeToString(cert.AuthorityKeyId),
	}
	// MaxPathLen 0 without MaxPathLenZero, and MaxPathLen -1, both mean that there is no limit.
	if cert.IsCA && (cert.MaxPathLen > 0 || cert.MaxPathLenZero) {
		info.PathLength = &cert.MaxPathLen
	}
	if c := constraintsOf(cert); c != "none" {
		info.NameConstraints = c
	}
	return info
}

// keyUsageNames returns the names of the key usages from RFC 5280 section 4.2.1.3.
func keyUsageNames(usage x509.KeyUsage) []string {
	out := []string{}
	for bit := x509.KeyUsageDigitalSignature; bit <= x509.KeyUsageDecipherOnly; bit <<= 1 {
		if usage&bit != 0 {
			out = append(out, bit.String())
		}
	}
	return out
}

// extKeyUsageNames returns the names of the extended key usages from RFC 5280 section 4.2.1.12.
// It returns the OID of a usage that Go does not know.
func extKeyUsageNames(usages []x509.ExtKeyUsage, unknown []asn1.ObjectIdentifier) []string {
	return append(toStrings(usages), toStrings(unknown)...)
}
