// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/internal/usage"
)

// clusterFlags say which cluster a command works on.
func clusterFlags(flags *pflag.FlagSet, o *rotation.OpenOptions, service *certs.Service) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: that of kubectl, or the pod's ServiceAccount)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVar(&service.Name, "service", "", "name of the Service in front of the API server (required)")
	flags.StringVar(&service.Namespace, "namespace", "", "namespace of the Service (required)")
}

// addressFlags are for where the addresses in the cluster do not lead to the processes.
func addressFlags(flags *pflag.FlagSet, o *rotation.OpenOptions) {
	flags.Var((*commaList)(&o.EndpointAddresses), "endpoint", "dial the servers at these HOST:PORT instead of those in the Service's EndpointSlices, with commas or repeated")
	flags.Var((*commaList)(&o.KubeAPIServerURLs), "kube-apiserver", "URLs of all kube-apiservers instead of the endpoints of default/kubernetes, with commas or repeated")
}

// open refuses with all problems of the command line at once. A kubeconfig that cannot be used is wrong usage too: nothing
// was asked.
func open(env environment, o rotation.OpenOptions, problems ...error) (*rotation.Cluster, error) {
	if err := errors.Join(append(o.Validate(), problems...)...); err != nil {
		return nil, err
	}
	cluster, err := rotation.Open(o)
	if err != nil {
		return nil, usage.Errorf("--kubeconfig: %w", err)
	}
	cluster.Now = env.now
	return cluster, nil
}
