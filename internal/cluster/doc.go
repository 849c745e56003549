// SPDX-License-Identifier: Apache-2.0

// Package cluster shows what of certificates there is in a running cluster: what endpoints serve, what APIServices and
// the ConfigMap of the front proxy trust and who owns it, and what each kube-apiserver answers. It writes nothing.
//
// Called by apply, which writes, by live, which judges, and by internal/rotation. Calls client-go and the clients of
// kube-aggregator. Clock, dialer and clients are injected.
package cluster
