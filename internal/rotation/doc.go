// SPDX-License-Identifier: Apache-2.0

// Package rotation replaces certificates and CAs under load: trust first, identity second, distrust last, never two in
// one step, and each step finished only when it was observed at every endpoint and every kube-apiserver. Renew and
// Maintain do it for what is due.
//
// Called by cmd/certgen. Calls internal/cluster, by the interface Observer, to look, and internal/cluster/apply to
// write; internal/certs for what X.509 says. The keys of CAs are never sent anywhere, but for that of the serving CA
// into the Secret that Maintain is told.
package rotation
