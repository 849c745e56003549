// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// portName links the port of the Service to that of its EndpointSlice.
const portName = "https"

// servicePort returns the port for the APIServices. An ExternalName Service maps no ports, so
// kube-apiserver connects to the port of the APIService.
func (e *Environment) servicePort() int32 {
	if e.lan != nil {
		return 443
	}
	u, err := url.Parse(e.Servers[0].URL)
	if err != nil {
		panic(err) // the URL is generated
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(port)
}

// applyService creates the Service in front of the extension API servers.
func (e *Environment) applyService(ctx context.Context) error {
	client, err := e.AdminClient()
	if err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: ServiceName, Namespace: Namespace}}
	if e.lan == nil {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	} else {
		service.Spec = corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: 443}}}
	}
	services := client.CoreV1().Services(Namespace)
	if err := createOrUpdate(ctx, service, services.Create, services.Update); err != nil {
		return fmt.Errorf("apply Service: %w", err)
	}
	if e.lan == nil {
		return nil
	}
	return e.SetEndpoints(ctx, e.Servers...)
}

// SetEndpoints makes exactly these servers the endpoints of the Service. It needs EndpointRouting
// or ClusterIPRouting, because endpoints cannot be loopback addresses.
func (e *Environment) SetEndpoints(ctx context.Context, servers ...*Server) error {
	client, err := e.AdminClient()
	if err != nil {
		return err
	}
	name, port, ready := portName, int32(serverPort), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: ServiceName, Namespace: Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: ServiceName},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, s := range servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{s.host.address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	slices := client.DiscoveryV1().EndpointSlices(Namespace)
	if err := createOrUpdate(ctx, slice, slices.Create, slices.Update); err != nil {
		return fmt.Errorf("apply EndpointSlice: %w", err)
	}
	return nil
}

// startKubeProxies starts a kube-proxy on each of the hosts, which maps ClusterIPs to endpoints
// there.
func (e *Environment) startKubeProxies(ctx context.Context, hosts []*host) error {
	kubeconfig, err := e.Kubeconfig("system:kube-proxy")
	if err != nil {
		return err
	}
	client, err := e.AdminClient()
	if err != nil {
		return err
	}
	for _, h := range hosts {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: h.name},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
				Address: h.address}}},
		}
		created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create Node %s: %w", h.name, err)
		}
		created.Status = node.Status
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set addresses of Node %s: %w", h.name, err)
		}
		if _, err := e.processes.start(h, "kube-proxy-"+h.name, []string{
			e.Binary("kube-proxy"),
			"--kubeconfig=" + kubeconfig,
			"--hostname-override=" + h.name,
			"--proxy-mode=nftables",
			// Zero keeps the kernel's limits, which apply to the whole machine.
			"--conntrack-max-per-core=0",
			"--conntrack-tcp-timeout-established=0",
			"--conntrack-tcp-timeout-close-wait=0",
		}); err != nil {
			return err
		}
	}
	return nil
}
