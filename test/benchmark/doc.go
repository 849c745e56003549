// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures what tunnels, many watches and requests cost. Its benchmarks start a control plane; run them
// with
//
//	go test ./test/benchmark -run '^$' -bench 'Konnectivity|Agents' -benchtime 1x -v
//
// Two servers of the sample, for example of two commits, are compared by
//
//	go test ./test/benchmark -run '^$' -bench Requests -benchtime 1000x -count 10 -timeout 1h -servers=/tmp/a,/tmp/b >/tmp/requests
//	go run golang.org/x/perf/cmd/benchstat@latest -col /server /tmp/requests
package benchmark
