#!/usr/bin/env bash
# Measures the values in docs/reference/measurements.md: times to ready, memory of the idle
# server, size of the binary. It takes about 7 minutes, most of it idle. Nothing else should run
# at the same time.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh
go build -o bin/local-up ./cmd/local-up
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "machine: $(nproc) cores, $(awk '/MemTotal/ { printf "%d", $2 / 1048576 }' /proc/meminfo) GiB, $(go version | cut -d' ' -f3-)"
median() { sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] " (" a[1] " to " a[NR] ")" }'; }

for i in 1 2 3 4 5; do bin/local-up --dir "$work/state" --measure 0s >"$work/run-$i"; done
# The first run creates certificates and an empty etcd. The others reuse both, as a second `make
# run` does.
printf 'make run to ready, s, median of 5 (least to most): %s\n' "$(sed -n 's/^Ready after \(.*\)s\.$/\1/p' "$work"/run-? | median)"
printf 'server start to /readyz with embedded etcd, s, median of 5 (least to most): %s\n' "$(sed -n 's/^  extension-apiserver  *\(.*\)s$/\1/p' "$work"/run-? | median)"

bin/local-up --dir "$work/embedded" --measure 60s >"$work/embedded.log"
printf 'embedded etcd: %s\n' "$(grep VmRSS "$work/embedded.log")"
bin/local-up --dir "$work/external" --external-etcd --measure 60s >"$work/external.log"
printf 'external etcd: %s\n' "$(grep VmRSS "$work/external.log")"
bin/local-up --dir "$work/widgets" --external-etcd --copy-of sample/objects/widget.yaml --copies 20000 --measure 60s >"$work/widgets.log"
printf 'external etcd, 20,000 widgets written: %s\n' "$(grep VmRSS "$work/widgets.log")"
bin/local-up --dir "$work/widgets" --external-etcd --measure 60s >"$work/widgets.log"
printf 'external etcd, started with them: %s\n' "$(grep VmRSS "$work/widgets.log")"
printf 'certgen init, all sets, ms, median of 5: %s\n' \
  "$(go test -run '^$' -bench '^BenchmarkInit$' -count 5 ./internal/certs | awk '/^BenchmarkInit/ { print $3 / 1000000 }' | median)"
for b in extension-apiserver certgen; do
  printf 'size of %s, stripped: %d MB\n' "$b" $(($(stat -c %s "bin/$b") / 1000000))
done
echo "authentication of a front-proxy request, verified and cached:"
go test ./internal/authentication -run '^$' -bench FrontProxy | grep ^Benchmark
