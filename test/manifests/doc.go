// SPDX-License-Identifier: Apache-2.0

// Package manifests tests the folder manifests. It renders every overlay, and every component on
// the base, with the kustomize in kubectl. It checks them against a table of rules, has a real
// kube-apiserver admit them, and runs the programs with their permissions and arguments.
package manifests
