// SPDX-License-Identifier: Apache-2.0

// Package frontproxy evaluates the ConfigMap kube-system/extension-apiserver-authentication:
// whether it gives extension API servers a sound trust in kube-apiserver's front proxy. The server
// and the checks of certgen share it, so that they agree. It only looks at the data and asks
// nobody.
package frontproxy
