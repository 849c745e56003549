// SPDX-License-Identifier: Apache-2.0

// Package direct attacks the server at its own port over real TLS, as any client that reaches it
// could. The server is the real binary. A relay between it and the real kube-apiserver records the
// server's requests, and returns wrong responses, or none, as a test requires. Names of tests
// begin with the numbers of the requirements that they verify.
package direct
