// SPDX-License-Identifier: Apache-2.0

// Package project tests a scaffolded project with a custom kind, from only the files that a team
// writes manually.
package project
