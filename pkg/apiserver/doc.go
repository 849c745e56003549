// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the server: Options (flags) -> Validate -> Config -> New -> Run, as in k8s.io/apiserver.
//
// The way of a request: the aggregator of kube-apiserver connects with the front proxy's client certificate; TLS offers
// the CAs of the live ConfigMap kube-system/extension-apiserver-authentication (authentication.go); pkg/authentication
// takes the user from the headers; priority and fairness admits it; a SubjectAccessReview authorizes it; while the server
// misses a permission, writes stop here (permissions.go); pkg/registry decodes, admits, validates and stores it (etcd.go).
//
// cmd/extension-apiserver calls it; it calls pkg/authentication, pkg/registry and pkg/apis/workshop/install.
package apiserver
