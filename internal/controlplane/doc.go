// SPDX-License-Identifier: Apache-2.0

// Package controlplane has the programs of a control plane: which they are, where they are given, and how they are
// built once for all projects of a machine. It imports little, so that a command that uses it is there within seconds
// on a machine with empty caches.
package controlplane
