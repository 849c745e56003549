// SPDX-License-Identifier: Apache-2.0

// Package konnectivity has the files of this folder, for programs that run where there is no checkout.
package konnectivity

import "embed"

// FS is this folder.
//
//go:embed *
var FS embed.FS
