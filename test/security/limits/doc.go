// SPDX-License-Identifier: Apache-2.0

// Package limits attacks the transport of a running server directly, as any client that reaches
// its port can: old TLS versions, floods of headers, slow senders, many connections. The names of
// its tests contain the numbers of the requirements in SECURITY.md. They send to 127.0.0.1 only,
// and each attack is bounded in count and time.
package limits
