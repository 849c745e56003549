// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a server for an API: API -> Options (flags) -> Complete -> Validate ->
// Run, as in k8s.io/apiserver.
//
// internal/serving accepts the connection of a request, and the request passes the filters of
// unauthenticatedFilters. internal/authentication authenticates it, API Priority and Fairness
// admits it, and a SubjectAccessReview authorizes it (authorization.go). The filters of
// authorizedFilters and the storage of pkg/registry follow. All filters are in internal/filters;
// config.go defines their order.
package apiserver
