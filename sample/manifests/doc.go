// SPDX-License-Identifier: Apache-2.0

// Package manifests holds the kustomizations of the sample against its API.
package manifests
