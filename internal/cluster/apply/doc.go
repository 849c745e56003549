// SPDX-License-Identifier: Apache-2.0

// Package apply writes certificates into a cluster: the caBundle of APIServices, the Secret of the serving pair, the
// CAs in the front proxy's ConfigMap. Each write is tried first, names what it was planned for by uid and
// resourceVersion, and leaves other managers' fields alone. A Lease keeps a second certgen away.
//
// Called by cmd/certgen and internal/rotation. Calls internal/cluster.
package apply
