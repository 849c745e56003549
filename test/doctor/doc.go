// SPDX-License-Identifier: Apache-2.0

// Package doctor injects faults into a real control plane, one at a time, and checks that
// kubectl aggregation doctor names exactly the injected cause.
package doctor
