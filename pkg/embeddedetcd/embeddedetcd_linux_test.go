// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEmbeddedEtcdHasNoPort: the embedded etcd listens only on its socket. It listens neither on
// the default ports for clients and peers, nor on an abstract socket, which has no permissions.
func TestEmbeddedEtcdHasNoPort(t *testing.T) {
	before := listening(t)
	dir := t.TempDir()
	_, closeEtcd := start(t, dir)
	defer closeEtcd()
	var fresh []string
	for _, address := range listening(t) {
		if !slices.Contains(before, address) {
			fresh = append(fresh, address)
		}
	}
	if want := []string{"unix " + filepath.Join(dir, "etcd.sock")}; !slices.Equal(fresh, want) {
		t.Errorf("new addresses that this process listens on: got %v, want %v", fresh, want)
	}
}

// listening returns the addresses on which this process listens, as listed in /proc.
func listening(t *testing.T) []string {
	t.Helper()
	own := map[string]bool{}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", d.Name())); err == nil {
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var found []string
	for _, table := range []struct {
		name, state              string
		stateAt, inodeAt, nameAt int
	}{
		{"tcp", "0A", 3, 9, 1}, {"tcp6", "0A", 3, 9, 1}, {"unix", "01", 5, 6, 7},
	} {
		data, err := os.ReadFile("/proc/self/net/" + table.name)
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			// A listening Unix socket has a name, a connected socket of a client does not.
			if len(fields) > table.nameAt && fields[table.stateAt] == table.state && own[fields[table.inodeAt]] {
				found = append(found, table.name+" "+fields[table.nameAt])
			}
		}
	}
	return found
}
