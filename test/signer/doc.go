// SPDX-License-Identifier: Apache-2.0

// Package signer tests certgen with a real cfssl server that has the CA's key.
package signer
