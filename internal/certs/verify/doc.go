// SPDX-License-Identifier: Apache-2.0

// Package verify checks certificates in files against what their peers will do with them: kube-aggregator with an
// APIService's caBundle, the request-header authenticator with the front proxy's client certificate, and the server
// that loads the pair. It also says when certificates end. It reads files, changes none, and knows nothing of
// Kubernetes' API.
//
// Every verdict is that of crypto/x509: whatever it refuses is a finding of severity error.
//
// What can be found is one table, in catalogue.go. Other packages have checks of their own: they make them with
// NewCheck, do them with Run, and report them with NewReport.
package verify
