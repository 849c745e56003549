// SPDX-License-Identifier: Apache-2.0

// Package libraries uses the generated types and clients with other versions of client-go and controller-runtime than
// the server's.
package libraries
