// SPDX-License-Identifier: Apache-2.0

// Package envtest starts a complete cluster control plane with your server behind it, as real
// processes on this Linux machine and without Docker. The processes are etcd, kube-apiserver with
// its aggregation layer, kube-controller-manager, and an extension API server built with this
// kit. The extension API server has only the permissions of the kit's manifests. Each process has
// a log file and exits when the process that started it exits for any reason. The package is for
// tests in any module: New starts an environment for one test, Main starts one for all tests of a
// package.
//
// # Programs
//
// etcd, kube-apiserver, kube-controller-manager and kubectl are built from source with pinned
// versions, once for all projects of a machine. This takes 6 to 10 minutes on 2 cores, and up to
// 550 MB of disk for all programs. It needs the go command, and the first time the Go module
// proxy. Environment variables change the versions and directories:
//
//   - ENVTEST_K8S_VERSION is the minor version of Kubernetes, such as 1.35. Default: DefaultMinor.
//   - EXTENSION_APISERVER_CACHE is the directory of the cache, an absolute path. Default:
//     extension-apiserver in the user's cache directory (os.UserCacheDir). The directories in its
//     subdirectory controlplane/ are named after everything that they depend on and never change.
//     You can delete old ones. The cache may be read-only after it has been filled. The kit's
//     command cmd/setup-envtest fills it.
//   - KUBEBUILDER_ASSETS is a directory with the etcd, kube-apiserver and kubectl of kubebuilder's
//     envtest. They are used instead if their version is Minor(); other versions are rejected.
//     kubebuilder does not ship kube-controller-manager. Unless the directory or the cache contains
//     it, it is built while tests already run (WaitControllers).
//
// The server is built each time, as by go run, so that tests never run an outdated one (Build).
//
// # Network
//
// By default all processes use 127.0.0.1, which needs no privileges. EndpointRouting and
// ClusterIPRouting give each process a network namespace with its own address, for tests of
// several servers. They need root.
package envtest
