// SPDX-License-Identifier: Apache-2.0

// Package doctor finds the root cause of what is wrong with an aggregated API of any server.
//
// Collect reads facts from a cluster, each once, and changes nothing. Checks are pure functions
// from facts to findings. The findings form a graph: an entry of internal/catalogue lists the
// findings that explain it, and a finding that none explains is a root cause.
package doctor
