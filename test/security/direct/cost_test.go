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

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/prometheus/procfs"
)

// memoryLimit is the memory limit of the container in manifests/base/deployment.yaml, in MiB.
const memoryLimit = 512

// costs starts a measurement. The returned function fails the test if the process has used more
// CPU since then than cpu. It also fails the test if the peak memory exceeds that of GET /readyz
// by more than mebibytes, or the limit of the container. Memory that is left afterwards does not
// matter: the kernel kills at the peak.
func (s *server) costs(t *testing.T, what string, cpu time.Duration, mebibytes uint64) (check func()) {
	t.Helper()
	s.resetPeak(t)
	s.try(nil, http.MethodGet, "/readyz", nil, "").want(t, "/readyz", http.StatusOK)
	before, ready := s.used(t)
	s.resetPeak(t)
	return func() {
		t.Helper()
		after, peak := s.used(t)
		used := after - before
		t.Logf("%s: %s of CPU; VmHWM %d MiB, %d MiB for /readyz", what, used, peak, ready)
		if used > cpu {
			t.Errorf("%s: used %s of CPU, want at most %s", what, used, cpu)
		}
		if peak > ready+mebibytes || peak > memoryLimit {
			t.Errorf("%s: VmHWM is %d MiB, want at most %d MiB more than the %d MiB for /readyz, and at most %d MiB",
				what, peak, mebibytes, ready, memoryLimit)
		}
	}
}

// resetPeak sets VmHWM to VmRSS (proc_pid_clear_refs(5)).
func (s *server) resetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// used returns the CPU time that the process has used, and VmHWM in MiB.
func (s *server) used(t *testing.T) (cpu time.Duration, peak uint64) {
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
	return time.Duration(stat.CPUTime() * float64(time.Second)), status.VmHWM >> 20
}

// keeper sends requests over connections that stay open, as the aggregator does: a handshake for
// each of thousands of requests would cost more than the requests.
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
	return &keeper{http.Client{Transport: transport, CheckRedirect: noRedirect, Timeout: envtest.WaitTimeout},
		"https://" + s.address}
}

func (k *keeper) try(method, path string, header http.Header, body string) response {
	req, err := http.NewRequest(method, k.base+path, strings.NewReader(body))
	if err != nil {
		return response{0, nil, err.Error()}
	}
	maps.Copy(req.Header, header)
	return read(k.Do(req))
}
