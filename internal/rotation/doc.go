// SPDX-License-Identifier: Apache-2.0

// Package rotation brings certificates of internal/certs into a cluster, looks at what a running cluster serves and trusts,
// and replaces certificates and CAs under load: trust first, identity second, distrust last, never two in one step, and
// each step finished only when it was observed at every endpoint and every kube-apiserver.
//
// Called by cmd/certgen. Calls client-go and the clients of kube-aggregator; internal/certs and internal/certs/verify for what
// X.509 says; internal/manifest for the objects that it applies. Clock, dialer and clients are injected through Cluster. The
// keys of CAs are never sent anywhere, but for that of the serving CA into the Secret that Maintain is told.
package rotation
