// SPDX-License-Identifier: Apache-2.0

// Package integration tests the API as clients use it: through the aggregation layer of a real
// kube-apiserver, with a server that has the permissions of its manifests. Tests that disturb the
// control plane start their own.
package integration
