// SPDX-License-Identifier: Apache-2.0

// Package integration tests the API as clients see it: through the aggregation layer of a real kube-apiserver, with the
// server running under the rights of its manifests. Tests that disturb the control plane start one of their own.
package integration
