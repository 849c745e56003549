// SPDX-License-Identifier: Apache-2.0

// Package load sends a steady load of reads (70 %), writes (30 %) and open watches through
// kube-apiservers to an API and counts failures. It never retries. Tests that change a running
// cluster use it: rotations and rollouts.
package load
