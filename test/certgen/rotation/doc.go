// SPDX-License-Identifier: Apache-2.0

// Package rotation tests that certificates and CAs of a running cluster are replaced without a
// failed request. Its tests run two kube-apiservers and two extension API servers in network
// namespaces, under a load that counts every failure, with watches and consoles open. The
// kube-apiservers share the files of their front proxy in most tests, and each has its own in one.
package rotation
