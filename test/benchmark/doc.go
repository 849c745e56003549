// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures the cost of tunnels, of many watches and of requests. Its benchmarks
// start a control plane. Run them with
//
//	go test ./test/benchmark -run '^$' -bench 'Konnectivity|Agents' -benchtime 1x -v
//
// make benchmark runs BenchmarkCompare, which compares the sample's server with a CRD, with
// ConfigMaps and with sample-apiserver. The objects have equal contents. CPU times are those of
// kube-apiserver and of the extension API server, without etcd, the client, and what the processes
// use without requests. The user is not an administrator, so authorization is part of the cost.
//
// Compare two builds of the sample's server, such as those of two commits, in rounds:
//
//	for round in $(seq 10); do
//	  go test ./test/benchmark -run '^$' -bench Requests -benchtime 1000x -servers=/tmp/a,/tmp/b
//	done >/tmp/requests
//	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da \
//	  -col /server /tmp/requests
package benchmark
