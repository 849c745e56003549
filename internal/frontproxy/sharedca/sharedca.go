// SPDX-License-Identifier: Apache-2.0

// Package sharedca tells whether the certificates that one CA signs can pass for those of another.
package sharedca

import (
	"bytes"
	"crypto/x509"
)

// Relation describes how the first of two CAs can stand in for the second, or the second for the
// first, as a verb: "has the key of", "signed" or "was signed by". It is empty if neither can. Names
// and times do not count, only keys: the CA of a key can sign with every name that the key has, and a
// relation that is not valid yet must not come true later unseen.
func Relation(ca, other *x509.Certificate) string {
	switch {
	case bytes.Equal(ca.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo):
		return "has the key of"
	case other.CheckSignatureFrom(ca) == nil:
		return "signed"
	case ca.CheckSignatureFrom(other) == nil:
		return "was signed by"
	}
	return ""
}
