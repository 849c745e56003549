// SPDX-License-Identifier: Apache-2.0

// Package konnectivity runs kube-apiserver on a host that has no route to the extension API
// servers, with the real konnectivity server and agents in between. It tests every use of the API
// in every mode, and the failure of each part of the tunnel. The egress selector configurations
// are those of konnectivity/egress.
//
// The folder kind has the same for a kind cluster: `make kind-test-konnectivity`.
//
// It needs root, or user namespaces. `go test -tags measure -run TestMeasure -timeout 90m` repeats
// the measurements of docs/reference/konnectivity-measurements.md.
package konnectivity
