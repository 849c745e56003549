// SPDX-License-Identifier: Apache-2.0

// Package fips tests the binaries of `make build-fips`, which use the Go Cryptographic Module in
// FIPS 140-3 mode.
package fips
