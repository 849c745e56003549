// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures what tunnels and many watches cost. Its benchmarks start a control plane; run them with
//
//	go test ./test/benchmark -run '^$' -bench 'Konnectivity|Agents' -benchtime 1x -v
package benchmark
