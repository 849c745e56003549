// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"encoding/asn1"
)

// keyUsageNames spells key usages as RFC 5280 section 4.2.1.3 does.
func keyUsageNames(usage x509.KeyUsage) []string {
	out := []string{}
	for i, name := range []string{
		"digitalSignature", "contentCommitment", "keyEncipherment", "dataEncipherment", "keyAgreement",
		"keyCertSign", "cRLSign", "encipherOnly", "decipherOnly",
	} {
		if usage&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// extKeyUsageNames spells extended key usages as RFC 5280 section 4.2.1.12 does, those unknown to Go as their OID.
func extKeyUsageNames(usages []x509.ExtKeyUsage, unknown []asn1.ObjectIdentifier) []string {
	names := map[x509.ExtKeyUsage]string{
		x509.ExtKeyUsageAny:             "anyExtendedKeyUsage",
		x509.ExtKeyUsageServerAuth:      "serverAuth",
		x509.ExtKeyUsageClientAuth:      "clientAuth",
		x509.ExtKeyUsageCodeSigning:     "codeSigning",
		x509.ExtKeyUsageEmailProtection: "emailProtection",
		x509.ExtKeyUsageTimeStamping:    "timeStamping",
		x509.ExtKeyUsageOCSPSigning:     "OCSPSigning",
	}
	out := []string{}
	for _, usage := range usages {
		name, ok := names[usage]
		if !ok {
			name = "other"
		}
		out = append(out, name)
	}
	for _, oid := range unknown {
		out = append(out, oid.String())
	}
	return out
}
