// SPDX-License-Identifier: Apache-2.0

// Package gitops installs and upgrades the sample with the engines of Argo CD, Flux and Helm, as
// docs/operate/gitops.md describes. The engines are libraries here. They use the cluster of the
// kubeconfig in GITOPS_KUBECONFIG, whose objects of the sample the tests delete. If the variable is
// not set, each test starts the etcd and the kube-apiserver in KUBEBUILDER_ASSETS.
//
// No test needs pods. The tests do what the pods of certgen would do through the API, and report
// the server as ready when its certificate exists.
package gitops
