// SPDX-License-Identifier: Apache-2.0

// Package sharedca reports whether the certificates that one CA signs can pass for those of
// another.
package sharedca

import (
	"bytes"
	"crypto/x509"
)

// Relation describes, as a verb, how one of two CAs can stand in for the other: "has the key of",
// "signed" or "was signed by". It returns "" if neither can. Names and times do not count, only
// keys: a CA can sign with every name that its key has, and a relation that is not valid yet must
// not become valid unnoticed.
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
