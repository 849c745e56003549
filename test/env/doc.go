// SPDX-License-Identifier: Apache-2.0

// Package env starts a whole cluster control plane with our server behind it, as real processes on this machine: etcd,
// kube-apiserver with its aggregation layer, kube-controller-manager, and the extension API server with the rights of
// manifests/base/rbac.yaml. Each has a log file; all end with the process that started them, however it ends.
//
// Tests call New, `make run` calls Start (test/env/run). It calls internal/certs for every certificate, and internal/registration
// to register the API.
package env
