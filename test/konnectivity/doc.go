// SPDX-License-Identifier: Apache-2.0

// Package konnectivity runs kube-apiserver on a host that has no route to our servers, with the real konnectivity
// server and agents in between: every way to use the API in every mode, and what happens when a part of the tunnel
// fails. The egress selector configurations are those of konnectivity/egress.
//
// The folder kind has the same for a kind cluster: `make kind-test-konnectivity`.
//
// It needs root, or user namespaces. `go test -tags measure -run TestMeasure -timeout 90m` repeats the figures of
// docs/konnectivity.md.
package konnectivity
