// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands of the documentation, in a copy of the tree, as a new user would, and holds its tables
// against the code.
package docs
