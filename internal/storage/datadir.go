// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"net/url"
	"path/filepath"
)

// EmbeddedMember is the name of the only member of the embedded etcd.
const EmbeddedMember = "embedded"

// EmbeddedPeerURL is where that member says that other members reach it. Nobody dials it; etcd only wants one that
// looks like an address.
var EmbeddedPeerURL = url.URL{Scheme: "http", Host: "localhost:2380"}

// SocketPath is where the embedded etcd listens, in the server's data directory.
func SocketPath(dataDir string) string { return filepath.Join(dataDir, "etcd.sock") }

// LockPath is the file that a running server, or a restore, holds locked.
func LockPath(dataDir string) string { return filepath.Join(dataDir, "lock") }

// EtcdDir is the embedded etcd's own data directory, in the server's.
func EtcdDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }
