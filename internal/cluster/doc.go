// SPDX-License-Identifier: Apache-2.0

// Package cluster observes the certificates in a running cluster: what endpoints serve, which
// CAs APIServices and the front proxy's ConfigMap trust, who owns these fields, and how each
// kube-apiserver responds. It writes nothing.
//
// Its callers are apply, which writes, live, which evaluates observations, and
// internal/rotation. It uses client-go and the clients of kube-aggregator. Clock, dialer and
// clients are injected.
package cluster
