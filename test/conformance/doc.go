// SPDX-License-Identifier: Apache-2.0

// Package conformance runs the checks of pkg/conformance against resources with known behaviour:
// those of kube-apiserver itself, of a CustomResourceDefinition, of k8s.io/sample-apiserver, and
// of the kit's own server.
package conformance
