// SPDX-License-Identifier: Apache-2.0

// Package project makes a project with a kind of its own, from files that a team writes by hand and nothing else.
package project
