// SPDX-License-Identifier: Apache-2.0

// Package frontproxy evaluates the ConfigMap kube-system/extension-apiserver-authentication:
// whether extension API servers can safely trust kube-apiserver's front proxy. The server and the
// checks of certgen share it, so that they agree. It only reads data and sends no requests.
package frontproxy
