// SPDX-License-Identifier: Apache-2.0

// Package live checks a running API server against the data in the cluster, as kube-aggregator
// and API servers do. It also reports when served and trusted certificates expire.
//
// Its caller is cmd/certgen. It uses internal/cluster, and internal/cluster/apply to read a
// directory as apply does.
package live
