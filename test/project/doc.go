// SPDX-License-Identifier: Apache-2.0

// Package project tests a scaffolded project with a custom kind, from nothing but files that a
// team writes by hand.
package project
