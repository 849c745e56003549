// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what make deploy and make undeploy ask before they change anything, against the real
// kube-apiserver. That pods then start and the API works is tested on a kind cluster, in test/e2e.
package deploy
