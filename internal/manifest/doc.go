// SPDX-License-Identifier: Apache-2.0

// Package manifest writes certificates as manifests for Kubernetes: a Secret for a pair, and the caBundle of
// APIServices. The same certificates give the same bytes. It asks no cluster.
//
// Called by cmd/certgen. Calls internal/certs and internal/certs/verify: what certgen verify calls an error is not put into a
// manifest. The objects are plain structs with the few fields that are written. The types of k8s.io/api would add their
// empty ones, such as a status, which a server-side apply then owns.
package manifest
