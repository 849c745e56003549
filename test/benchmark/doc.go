// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures what a way to our server costs. Its benchmarks start a control plane; `make benchmark-konnectivity` runs them.
package benchmark
