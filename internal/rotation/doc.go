// SPDX-License-Identifier: Apache-2.0

// Package rotation replaces certificates and CAs under load. A rotation first establishes trust
// in a new CA, then changes the identity, and last removes trust in the old CA. No step does two
// of these. Each step finishes only after its effect was observed at every endpoint and every
// kube-apiserver. Renew and Maintain rotate what is due.
//
// cmd/certgen calls this package. The package observes the cluster with internal/cluster through
// the interface Observer, writes with internal/cluster/apply, and uses internal/certs for X.509.
// Keys of CAs are never sent anywhere, except that Maintain stores the serving CA's key in the
// configured Secret.
package rotation
