// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"net"
	"testing"
)

// TestBusyPort: a port in use is not allocated, and if all ports are in use, the error names a
// command that shows by which processes.
func TestBusyPort(t *testing.T) {
	var ps ports
	first, err := ps.take()
	ps.release()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer ps.release()
	if second, err := ps.take(); err != nil || second == first {
		t.Errorf("got port %d (%v), on which somebody listens", second, err)
	}
	_, err = ps.takeBetween(first, first)
	wantError(t, err, fmt.Sprintf("reserve port: no port is free between %d and %d; ss -ltnp lists the processes that use them",
		first, first))
}
