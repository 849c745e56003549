// SPDX-License-Identifier: Apache-2.0

// Package clients tests the API through kube-apiserver with clients other than client-go: those
// of Python and JavaScript, and the tools that generate types from its OpenAPI documents. It runs
// the code that users copy from docs/operate/clients.md.
package clients
