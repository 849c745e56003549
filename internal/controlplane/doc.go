// SPDX-License-Identifier: Apache-2.0

// Package controlplane manages the programs of a control plane: the list of programs, their
// locations, and how they are built once for all projects on a machine. It imports little, so that
// a command that uses it is built within seconds on a machine with empty caches.
package controlplane
