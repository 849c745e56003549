// SPDX-License-Identifier: Apache-2.0

// Package rollout tests that extension API servers can be replaced one after the other under
// load, and counts failed requests for each way in which kube-apiserver can reach them.
package rollout
