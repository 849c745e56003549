// SPDX-License-Identifier: Apache-2.0

// Package storage operates the etcd in which the server stores its objects: snapshot, restore,
// defragmentation and status. It does so for the etcd embedded in a server, which it reaches
// through the socket in the data directory, and for an external cluster.
//
// It uses etcd's own client and the snapshot package of etcdutl, and keeps its file format:
// etcdutl reads these snapshots, and vice versa.
package storage
