// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the server: Options (flags) -> Complete -> Validate -> Run, as in k8s.io/apiserver.
//
// The way of a request: limitedListener accepts the connection (connections.go), and limitRequests and
// withDeadlines bound what it may hold before it is known who sends it. internal/authentication takes the
// user from the headers of the front proxy, from a certificate or from a token; priority and fairness
// admits the request; a SubjectAccessReview authorizes it (authorization.go). Then come the filters for
// requests that last (lasting.go, upgrades.go, origin.go), for writes (permissions.go, utf8.go, yamlbodies.go,
// patches.go, mismatches.go) and pkg/registry. unknownFilters and authorizedFilters in config.go have the order.
package apiserver
