// SPDX-License-Identifier: Apache-2.0

// Package konnectivity embeds the files of this folder, for programs that run without a checkout.
package konnectivity

import "embed"

// FS is this folder.
//
//go:embed *
var FS embed.FS
