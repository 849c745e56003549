// SPDX-License-Identifier: Apache-2.0

// Package aggregated tests the security of our server behind a real kube-apiserver: who a caller is, what our server
// asks about it, and what neither a caller nor an outage may change. The numbers in the names of tests (S1 to S52) are
// those of the requirements.
package aggregated
