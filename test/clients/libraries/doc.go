// SPDX-License-Identifier: Apache-2.0

// Package libraries tests the generated types and clients with versions of client-go and
// controller-runtime other than the server's.
package libraries
