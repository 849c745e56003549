// SPDX-License-Identifier: Apache-2.0

// Package release tests what is checked and built for a release: `make vulncheck`, and the binaries
// of `make build-fips`, which use the Go Cryptographic Module in FIPS 140-3 mode. The tests of images
// and SBOMs are in scripts/image.
package release
