// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// cost is what the server's process has used until now.
type cost struct {
	cpu      time.Duration
	resident uint64 // bytes
}

func (s *server) cost(t *testing.T) cost {
	t.Helper()
	proc, err := procfs.NewProc(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return cost{time.Duration(stat.CPUTime() * float64(time.Second)), status.VmRSS}
}

// grownBy fails the test if the process used more since before than the bounds allow, and says what it used.
func (s *server) grownBy(t *testing.T, what string, before cost, cpu time.Duration, mebibytes uint64) {
	t.Helper()
	after := s.cost(t)
	used := after.cpu - before.cpu
	t.Logf("%s: %s of CPU; VmRSS %d MiB before, %d MiB after", what, used, before.resident>>20, after.resident>>20)
	if used > cpu {
		t.Errorf("%s: used %s of CPU, want at most %s", what, used, cpu)
	}
	if after.resident > before.resident+mebibytes<<20 {
		t.Errorf("%s: VmRSS grew from %d to %d MiB, want at most %d MiB more", what, before.resident>>20, after.resident>>20, mebibytes)
	}
}

// memoryLimit is that of the container in manifests/base/deployment.yaml, in MiB.
const memoryLimit = 512

// peak returns the most memory, in MiB, that the process had while f ran (proc_pid_clear_refs(5)). What
// is left afterwards says nothing: the kernel kills at the peak.
func (s *server) peak(t *testing.T, f func()) uint64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	f()
	proc, err := procfs.NewProc(s.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return status.VmHWM >> 20
}

// peaksBy fails the test if, while f runs, the process uses more CPU or so many MiB more than for
// GET /readyz, or more than the container may have.
func (s *server) peaksBy(t *testing.T, what string, cpu time.Duration, mebibytes uint64, f func()) {
	t.Helper()
	ready := s.peak(t, func() { s.try(nil, http.MethodGet, "/readyz", nil, "").want(t, "/readyz", http.StatusOK) })
	before := s.cost(t)
	peak := s.peak(t, f)
	used := s.cost(t).cpu - before.cpu
	t.Logf("%s: %s of CPU; VmHWM %d MiB, %d MiB for /readyz", what, used, peak, ready)
	if used > cpu {
		t.Errorf("%s: used %s of CPU, want at most %s", what, used, cpu)
	}
	if peak > ready+mebibytes || peak > memoryLimit {
		t.Errorf("%s: VmHWM is %d MiB, want at most %d MiB more than the %d MiB for /readyz, and at most %d MiB", what, peak, mebibytes, ready, memoryLimit)
	}
}

// keeper sends requests over connections that stay open, as the aggregator does: a handshake for each of thousands of requests would
// cost more than the requests.
type keeper struct {
	http.Client
	base string
}

func (s *server) keep(t *testing.T, cert *tls.Certificate) *keeper {
	t.Helper()
	config, err := clientTLS(cert)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &keeper{http.Client{Transport: transport, CheckRedirect: noRedirect, Timeout: patience}, "https://" + s.address}
}

func (k *keeper) try(method, path string, header http.Header, body string) answer {
	req, err := http.NewRequest(method, k.base+path, strings.NewReader(body))
	if err != nil {
		return answer{0, nil, err.Error()}
	}
	maps.Copy(req.Header, header)
	return read(k.Do(req))
}
