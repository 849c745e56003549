// SPDX-License-Identifier: Apache-2.0

// Package storage operates the etcd that the server stores its objects in: snapshot, restore, defragmentation, status.
// It does so for the etcd embedded in a server, which it reaches through the socket in the data directory, and for an
// external cluster.
//
// It uses etcd's own client and the snapshot package of etcdutl, whose file format it keeps: etcdutl reads what is
// saved here, and the other way round.
package storage
