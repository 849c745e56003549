// SPDX-License-Identifier: Apache-2.0

// Package e2e has the suites of `make kind-test`: what only a cluster with nodes can show. They need the build tag e2e,
// and the cluster of `make kind-up` and its kubeconfig in KUBECONFIG; they deploy to it and remove from it.
//
//	TestDefault    what make kind-deploy left: storage on a volume, certificates by the init Job
//	TestAccess     docs/access.md: a port-forward to the server's own port, on what make kind-deploy left
//	TestScheduler  docs/second-scheduler.md, likewise: a second kube-scheduler, and each of its rights taken away
//	TestUninstall  make deploy and make undeploy, and that the cluster afterwards equals the cluster before
//	TestProduction two servers on an etcd cluster of three, replaced and given another certificate under load
//	TestRotation   the same servers, reached by their endpoints, given another CA by the CronJob under load
//	TestFrontproxy the front proxy's CA of that cluster, replaced under load
//	TestComponents the network profiles for managed control planes, and monitoring
//	TestKonnectivity in a cluster of its own, where kube-apiserver reaches Services through konnectivity only
package e2e
