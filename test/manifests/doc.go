// SPDX-License-Identifier: Apache-2.0

// Package manifests tests what is in the folder manifests: every overlay, and every component on the base, is rendered
// by the kustomize in kubectl, held against a table of rules, admitted by a real kube-apiserver, and run with its very
// rights and arguments.
package manifests
