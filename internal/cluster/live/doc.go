// SPDX-License-Identifier: Apache-2.0

// Package live checks a running API server with the bytes that are in the cluster, as kube-aggregator and API servers
// will, and says when what is served and trusted ends.
//
// Called by cmd/certgen. Calls internal/cluster, and internal/cluster/apply to read a directory as apply would.
package live
