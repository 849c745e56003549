// SPDX-License-Identifier: Apache-2.0

// Package clients uses the API through kube-apiserver with clients that are not client-go: those of Python and
// JavaScript, and the tools that make types of its OpenAPI documents. What users of docs/clients.md copy is run here.
package clients
