// SPDX-License-Identifier: Apache-2.0

// Package e2e has the suites of `make kind-test`, for behavior that needs a cluster with nodes.
// They need the build tag e2e, and the cluster of `make kind-up` with its kubeconfig in
// KUBECONFIG. They deploy to the cluster and remove from it.
//
//	TestDefault    what make kind-deploy left: storage on a volume, certificates by the init Job
//	TestAccess     docs/operate/access.md: a port-forward to the server, after make kind-deploy
//	TestScheduler  docs/operate/second-scheduler.md, after make kind-deploy: a second
//	               kube-scheduler, and the effect of removing each of its bindings
//	TestUninstall  make deploy and make undeploy leave the cluster as it was before
//	TestProduction two servers on an etcd cluster of three members: rollout and renewal under load
//	TestRotation   the same servers, reached by their endpoints: rollout, CA rotation under load
//	TestFrontproxy the front-proxy CA of that cluster, replaced under load
//	TestComponents the network profiles for managed control planes, and monitoring
//	TestKonnectivity a separate cluster: kube-apiserver reaches Services only through konnectivity
package e2e
