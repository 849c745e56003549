// SPDX-License-Identifier: Apache-2.0

// Package template proves that the kit is a template: in a copy of the tree it renames everything, adds a kind and deletes
// the sample by the commands of docs/add-a-resource.md, and what is left generates, builds and passes its tests.
package template
