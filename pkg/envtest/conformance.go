// SPDX-License-Identifier: Apache-2.0

package envtest

import "example.com/extension-apiserver/pkg/conformance"

// ConformanceTarget is what the environment knows of a target: the user Admin, the first server's own port, kubectl,
// and an address for webhooks on loopback. It is thrown away, so disruptive checks are allowed. What is left to set is
// the sample and its changes.
func (e *Environment) ConformanceTarget() (conformance.Target, error) {
	admin, err := e.AdminConfig()
	if err != nil {
		return conformance.Target{}, err
	}
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		return conformance.Target{}, err
	}
	return conformance.Target{
		Config: admin, Server: e.Servers[0].ConfigAs(e, admin),
		Kubectl: []string{e.Binary("kubectl"), "--kubeconfig=" + kubeconfig}, WebhookAddress: "127.0.0.1:0",
		AllowDisruptive: true,
	}, nil
}
