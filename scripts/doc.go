// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the scripts in this folder. `make deploy` and `make undeploy` run against a real kube-apiserver
// without nodes: the suites of test/e2e show on a kind cluster that pods start.
package scripts
