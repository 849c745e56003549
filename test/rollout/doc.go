// SPDX-License-Identifier: Apache-2.0

// Package rollout proves that our servers can be replaced under load, one after the other, and counts what that costs
// in each way in which kube-apiserver can reach them.
package rollout
