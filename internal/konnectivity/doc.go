// SPDX-License-Identifier: Apache-2.0

// Package konnectivity checks a set of files that puts kube-apiserver's connections through konnectivity: the
// EgressSelectorConfiguration, the manifests of kube-apiserver, of konnectivity's servers and agents, the certificates, and
// the extension API server's APIServices, Services and policies. Each part can be right and the set wrong, which is seen
// in a cluster only, when nothing reaches an aggregated API any more. It reads files, changes none and asks no cluster.
//
// Called by cmd/certgen. Calls kube-apiserver's own reader of the configuration (k8s.io/apiserver), the types of
// Kubernetes, and internal/certs/verify for certificates and the form of findings. konnectivity's own flag parser is not
// imported: its modules would move the versions of gRPC and the Go directive of this module. A test compares the table of
// flags with the real programs.
//
// What can be found is one table, in rules.go.
package konnectivity
