// SPDX-License-Identifier: Apache-2.0

// Package docs runs the commands of the documentation in a copy of the tree, as a new user would,
// and compares its tables with the code.
package docs
