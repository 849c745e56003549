// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the scripts in this folder. It runs `make deploy` and `make undeploy`
// against a real kube-apiserver without nodes. The suites of test/e2e check on a kind cluster
// that pods start.
package scripts
