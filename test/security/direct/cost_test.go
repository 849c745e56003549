// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"crypto/tls"
	"maps"
	"net/http"
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
