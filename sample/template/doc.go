// SPDX-License-Identifier: Apache-2.0

// Package template works with a fork as its owner does: it renames the module, adds a kind and deletes one of the sample by the
// commands of docs/add-a-resource.md, and what is left generates, builds and passes its tests.
package template
