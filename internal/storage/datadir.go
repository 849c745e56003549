// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"net/url"
	"path/filepath"
)

// EmbeddedMember is the name of the only member of the embedded etcd.
const EmbeddedMember = "embedded"

// EmbeddedPeerURL is the peer URL that the embedded member advertises. No client connects to it;
// etcd only requires a value that looks like an address.
var EmbeddedPeerURL = url.URL{Scheme: "http", Host: "localhost:2380"}

// SocketPath returns the path of the socket on which the embedded etcd listens, in the server's
// data directory.
func SocketPath(dataDir string) string { return filepath.Join(dataDir, "etcd.sock") }

// LockPath returns the path of the file that a running server, or a restore, holds locked.
func LockPath(dataDir string) string { return filepath.Join(dataDir, "lock") }

// EtcdDir returns the embedded etcd's own data directory, in the server's data directory.
func EtcdDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }
