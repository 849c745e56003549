// SPDX-License-Identifier: Apache-2.0

// Package envtest starts a whole cluster control plane with your server behind it, as real processes on this Linux
// machine and without Docker: etcd, kube-apiserver with its aggregation layer, kube-controller-manager, and an
// extension API server made with this kit, with the rights of the kit's manifests and no others. Each has a log file;
// all end with the process that started them, however it ends. It is for tests, in any module: New starts one for a
// test, Main one for all tests of a package.
//
// # Programs
//
// etcd, kube-apiserver, kube-controller-manager and kubectl are built from source with pinned versions, once for all
// projects of a machine: 6 to 10 minutes on 2 cores, and 550 MB of disk with all that there can be. That needs the go
// command, and the first time the Go module proxy. Environment variables change what they are and where:
//
//   - ENVTEST_K8S_VERSION is the minor of Kubernetes, such as 1.35. Default: DefaultMinor.
//   - EXTENSION_APISERVER_CACHE is the directory of the cache, an absolute path. Default: extension-apiserver in
//     the user's cache directory (os.UserCacheDir). What is in controlplane/ there is named after all that it
//     depends on and is never changed; remove what is old. It may be read-only once it is filled; the command
//     setup beside this package fills it.
//   - KUBEBUILDER_ASSETS is a directory with the etcd, kube-apiserver and kubectl of kubebuilder's envtest, which
//     are used instead when they are of version Minor(); others are refused. kube-controller-manager is not among
//     them: unless it is there or in the cache, it is built while tests run already (WaitControllers).
//
// The server is built by go run's rules each time, so that no test runs yesterday's (Build).
//
// # Network
//
// By default everything is on 127.0.0.1, which needs no rights. EndpointRouting and ClusterIPRouting give each process
// a network namespace with an address of its own, for tests of several servers; they need root.
package envtest
