// SPDX-License-Identifier: Apache-2.0

// Package apiserver turns an API into a running server: API -> Options (flags) -> Complete -> Validate -> Run, as in
// k8s.io/apiserver.
//
// A request passes internal/serving, which accepts its connection, and the filters of unauthenticatedFilters.
// internal/authentication authenticates it, priority and fairness admits it, and a SubjectAccessReview authorizes it
// (authorization.go). The filters of authorizedFilters follow, and then the storage of pkg/registry. All filters are in
// internal/filters; config.go puts them in order.
package apiserver
