// SPDX-License-Identifier: Apache-2.0

// Package apply writes certificates to a cluster: the caBundle of APIServices, the Secret of the
// serving key pair, and the CAs in the front proxy's ConfigMap. It tries each write as a dry run
// first. Each write refers to the planned object by uid and resourceVersion and does not change
// fields of other managers. A Lease excludes a second certgen.
//
// Its callers are cmd/certgen and internal/rotation. It uses internal/cluster.
package apply
