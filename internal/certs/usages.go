// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"encoding/asn1"
)

// keyUsageNames spells key usages as RFC 5280 section 4.2.1.3 does.
func keyUsageNames(usage x509.KeyUsage) []string {
	out := []string{}
	for bit := x509.KeyUsageDigitalSignature; bit <= x509.KeyUsageDecipherOnly; bit <<= 1 {
		if usage&bit != 0 {
			out = append(out, bit.String())
		}
	}
	return out
}

// extKeyUsageNames spells extended key usages as RFC 5280 section 4.2.1.12 does, those unknown to Go as their OID.
func extKeyUsageNames(usages []x509.ExtKeyUsage, unknown []asn1.ObjectIdentifier) []string {
	return append(toStrings(usages), toStrings(unknown)...)
}
