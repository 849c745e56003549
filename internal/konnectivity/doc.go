// SPDX-License-Identifier: Apache-2.0

// Package konnectivity checks a set of files that puts kube-apiserver's connections through konnectivity: the
// EgressSelectorConfiguration, the manifests of kube-apiserver, of konnectivity's servers and agents, and the
// certificates. Each part can be right and the set wrong, which is seen only in a cluster, when nothing reaches an
// aggregated API any more. It reads files, changes none and asks no cluster; the package live does that.
//
// The rules, in rules.go, cover what can still go wrong with the manifests in the folder konnectivity. What those get
// right is tested there, against the konnectivity programs themselves.
package konnectivity
