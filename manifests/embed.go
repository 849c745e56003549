// SPDX-License-Identifier: Apache-2.0

// Package manifests has the files of this folder, for programs that run where there is no checkout.
package manifests

import "embed"

// FS is this folder.
//
//go:embed *
var FS embed.FS
