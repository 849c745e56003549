// SPDX-License-Identifier: Apache-2.0

// Package verify checks certificates in files against the behaviour of their peers:
// kube-aggregator with an APIService's caBundle, the request-header authenticator with the front
// proxy's client certificate, and the server that loads the key pair. It also reports when
// certificates expire. It only reads files and has no knowledge of Kubernetes' API.
//
// crypto/x509 does all verification: a certificate that it rejects is a finding of severity
// error.
//
// The table in rules.go has all checks, and internal/catalogue their texts.
package verify
