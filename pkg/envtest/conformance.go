// SPDX-License-Identifier: Apache-2.0

package envtest

import "example.com/extension-apiserver/pkg/conformance"

// ConformanceTarget returns a target with the user Admin, the first server's own port, kubectl,
// and a loopback address for webhooks. The environment is temporary, so disruptive checks are
// allowed. The caller sets the sample and its changes.
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
