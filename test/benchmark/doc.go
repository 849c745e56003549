// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures what a way to our server costs. Its benchmarks start a control plane; `go test ./test/benchmark -run '^$' -bench Konnectivity -benchtime 1x -v` runs them.
package benchmark
