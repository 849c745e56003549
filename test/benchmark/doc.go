// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures what tunnels, many watches and requests cost. Its benchmarks start a control plane; run
// them with
//
//	go test ./test/benchmark -run '^$' -bench 'Konnectivity|Agents' -benchtime 1x -v
//
// Two servers of the sample, such as those of two commits, are compared in rounds by
//
//	for round in $(seq 10); do
//	  go test ./test/benchmark -run '^$' -bench Requests -benchtime 1000x -servers=/tmp/a,/tmp/b
//	done >/tmp/requests
//	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -col /server /tmp/requests
package benchmark
