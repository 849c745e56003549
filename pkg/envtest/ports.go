// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are below the range of ephemeral ports of Linux (32768 and up), so that no outgoing
// connection can use a port between the check and the bind of the child process.
const firstPort, lastPort = 21000, 30999

// ports allocates loopback ports. Each is locked by a file until release, so that concurrent
// environments in several processes do not use the same port.
type ports struct {
	mu    sync.Mutex // the controllers may start concurrently
	locks []*os.File
}

func (ps *ports) take() (int, error) { return ps.takeBetween(firstPort, lastPort) }

func (ps *ports) takeBetween(first, last int) (int, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	dir := filepath.Join(os.TempDir(), "extension-apiserver-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("reserve port: %w", err)
	}
	// Environments start the search at different ports, so that most find a free port in the
	// first attempt.
	span := last - first + 1
	for i := range span {
		port := first + (os.Getpid()*37+i)%span
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("reserve port: %w", err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			lock.Close()
			continue
		}
		// Check all addresses, because an extension API server may bind 0.0.0.0.
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			lock.Close()
			continue
		}
		l.Close()
		ps.locks = append(ps.locks, lock)
		return port, nil
	}
	return 0, fmt.Errorf("reserve port: no port is free between %d and %d; ss -ltnp lists the processes that use them",
		first, last)
}

func (ps *ports) release() {
	for _, l := range ps.locks {
		l.Close()
	}
	ps.locks = nil
}
