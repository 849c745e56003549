// SPDX-License-Identifier: Apache-2.0

// Package direct attacks our server at its own port over real TLS, as anybody could who reaches it. The server is the
// real binary; between it and the real kube-apiserver stands a relay that records what the server asks, and that gives
// the wrong answers, or none, that a test wants. Names of tests begin with the numbers of the requirements they prove.
package direct
