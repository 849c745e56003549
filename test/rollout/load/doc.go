// SPDX-License-Identifier: Apache-2.0

// Package load sends a steady load of reads (70 %), writes (30 %) and open watches through kube-apiservers to an API
// and counts what fails. Nothing is sent twice. The tests that change a running cluster use it: rotations, rollouts.
package load
