// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/usage"
)

func clusterFlags(flags *pflag.FlagSet, o *cluster.Options) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: that of kubectl, or the pod's ServiceAccount)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
}

// addressFlags are for where the addresses in the cluster do not lead to the processes.
func addressFlags(flags *pflag.FlagSet, o *cluster.Options) {
	flags.Var((*commaList)(&o.EndpointAddresses), "endpoint", "dial the servers at these HOST:PORT instead of those in the Service's EndpointSlices, with commas or repeated")
	flags.BoolVar(&o.PortForward, "port-forward", false, "reach the servers' pods through kube-apiserver, as kubectl port-forward does; needs the right to create pods/portforward")
	flags.Var((*commaList)(&o.KubeAPIServerURLs), "kube-apiserver", "URLs of all kube-apiservers instead of the endpoints of default/kubernetes, with commas or repeated")
}

// open refuses with all problems of the command line at once. A kubeconfig that cannot be used is wrong usage too: nothing
// was asked.
func open(env environment, o cluster.Options, problems ...error) (apply.Client, error) {
	if err := errors.Join(append(o.Validate(), problems...)...); err != nil {
		return apply.Client{}, err
	}
	c, err := cluster.Open(o)
	if err != nil {
		return apply.Client{}, usage.Errorf("--kubeconfig: %w", err)
	}
	c.Now = env.now
	return apply.Client{Cluster: c}, nil
}
