// SPDX-License-Identifier: Apache-2.0

// Package konnectivity checks a set of files that routes kube-apiserver's connections through
// konnectivity: the EgressSelectorConfiguration, the manifests of kube-apiserver and of
// konnectivity's servers and agents, and the certificates. Each part can be correct while the
// set is not. Without these checks, that shows only in a cluster, when no aggregated API is
// reachable any more. The package only reads files and does not access a cluster; the package
// live does.
//
// The rules, in rules.go, cover possible mistakes with the manifests in the folder konnectivity.
// The correct settings of these manifests are tested there, with the konnectivity programs.
package konnectivity
