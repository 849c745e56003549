// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// peer is one end of a connection: a pod, or, with an empty namespace, an address outside the pod
// network.
type peer struct {
	namespace string
	labels    labels.Set
	address   string
	ports     map[string]int32 // of its containers, by name
}

// matches reports whether a rule's peers include this one; no peers mean all. It depends on the
// network plugin whether an ipBlock matches a pod, so a pod also counts by its address: what is
// denied here is denied by every plugin.
func matches(t *testing.T, peers []networkingv1.NetworkPolicyPeer, own string, p peer) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(want networkingv1.NetworkPolicyPeer) bool {
		if want.IPBlock != nil {
			address := netip.MustParseAddr(p.address)
			return netip.MustParsePrefix(want.IPBlock.CIDR).Contains(address) &&
				!slices.ContainsFunc(want.IPBlock.Except, func(cidr string) bool {
					return netip.MustParsePrefix(cidr).Contains(address)
				})
		}
		inNamespace := p.namespace == own
		if want.NamespaceSelector != nil {
			inNamespace = p.namespace != "" && selectorOf(t, want.NamespaceSelector).Matches(
				labels.Set{"kubernetes.io/metadata.name": p.namespace})
		}
		return inNamespace && (want.PodSelector == nil || selectorOf(t, want.PodSelector).Matches(p.labels))
	})
}

// opens reports whether a rule's ports include this one of the destination; no ports mean all.
func opens(ports []networkingv1.NetworkPolicyPort, to peer, port int32, protocol corev1.Protocol) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(want networkingv1.NetworkPolicyPort) bool {
		number := want.Port.IntVal
		if want.Port.StrVal != "" {
			number = to.ports[want.Port.StrVal]
		}
		return number == port && *want.Protocol == protocol
	})
}

// allowed evaluates policies for one direction like a network plugin: a peer that no policy
// selects is unrestricted, otherwise a rule must allow the connection.
func allowed(t *testing.T, policies []*networkingv1.NetworkPolicy, direction networkingv1.PolicyType, from, to peer,
	port int32, protocol corev1.Protocol) bool {
	t.Helper()
	subject, other := to, from
	if direction == networkingv1.PolicyTypeEgress {
		subject, other = from, to
	}
	selected := false
	for _, p := range policies {
		if p.Namespace != subject.namespace || !selectorOf(t, &p.Spec.PodSelector).Matches(subject.labels) ||
			!slices.Contains(p.Spec.PolicyTypes, direction) {
			continue
		}
		selected = true
		if direction == networkingv1.PolicyTypeIngress {
			if slices.ContainsFunc(p.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return matches(t, rule.From, p.Namespace, other) && opens(rule.Ports, to, port, protocol)
			}) {
				return true
			}
		} else if slices.ContainsFunc(p.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return matches(t, rule.To, p.Namespace, other) && opens(rule.Ports, to, port, protocol)
		}) {
			return true
		}
	}
	return !selected
}

// TestNetworkPolicies checks which peers reach the server, and which peers its pods reach. S45.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	for _, v := range []variant{
		{name: "production", overlay: "production"}, {name: "port 10250",
			components: []string{"network-policy", "profile-port-10250"}},
	} {
		objects := parse(t, render(t, v))
		policies := only[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
		namespace := service(t, objects).Namespace
		port := server(t, objects).pod.Spec.Containers[0].Ports[0].ContainerPort
		pod := func(namespace, address string, set labels.Set) peer { return peer{namespace, set, address, nil} }
		ours := peer{namespace, server(t, objects).pod.Labels, "10.244.1.7", map[string]int32{"https": port}}
		certgen := pod(namespace, "10.244.1.8", labels.Set{"app.kubernetes.io/name": "extension-apiserver",
			"app.kubernetes.io/component": "certgen", "app.kubernetes.io/part-of": service(t, objects).Name})
		stranger := pod("default", "10.244.2.9", labels.Set{"app": "x"})
		neighbour := pod(namespace, "10.244.2.10", labels.Set{"app": "x"})
		controlPlane := peer{address: "172.18.0.2"}
		dns := pod("kube-system", "10.244.0.3", labels.Set{"k8s-app": "kube-dns"})
		prometheus := labels.Set{"app.kubernetes.io/name": "prometheus"}
		for _, tc := range []struct {
			name     string
			from, to peer
			port     int32
			protocol corev1.Protocol
			want     bool
		}{
			{"kube-apiserver", controlPlane, ours, port, corev1.ProtocolTCP, true},
			{"kube-apiserver by IPv6", peer{address: "2001:db8::1"}, ours, port, corev1.ProtocolTCP, true},
			{"kube-apiserver at another port", controlPlane, ours, 2379, corev1.ProtocolTCP, false},
			{"konnectivity", pod("kube-system", "10.244.0.4", labels.Set{"k8s-app": "konnectivity-agent"}), ours, port,
				corev1.ProtocolTCP, true},
			{"a pod with the labels of konnectivity", pod("default", "10.244.0.4",
				labels.Set{"k8s-app": "konnectivity-agent"}), ours, port, corev1.ProtocolTCP, false},
			{"Prometheus", pod("monitoring", "10.244.0.5", prometheus), ours, port, corev1.ProtocolTCP, true},
			{"a pod with the labels of Prometheus", pod("default", "10.244.0.5", prometheus), ours, port,
				corev1.ProtocolTCP, false},
			{"another pod of monitoring", pod("monitoring", "10.244.0.6", nil), ours, port, corev1.ProtocolTCP, false},
			{"a pod of another namespace", stranger, ours, port, corev1.ProtocolTCP, false},
			{"a pod by IPv6", pod("default", "fd00:10:244::9", nil), ours, port, corev1.ProtocolTCP, false},
			{"a pod of its namespace", neighbour, ours, port, corev1.ProtocolTCP, false},
			{"anybody to certgen", controlPlane, certgen, 443, corev1.ProtocolTCP, false},
			{"to kube-apiserver", ours, controlPlane, 6443, corev1.ProtocolTCP, true},
			{"to kube-apiserver's Service", ours, peer{address: "10.96.0.1"}, 443, corev1.ProtocolTCP, true},
			{"to DNS", ours, dns, 53, corev1.ProtocolUDP, true},
			{"to DNS of another pod", ours, stranger, 53, corev1.ProtocolUDP, false},
			{"to etcd", ours, pod("etcd-system", "10.244.3.1", nil), 2379, corev1.ProtocolTCP, true},
			{"to another pod", ours, stranger, 443, corev1.ProtocolTCP, false},
			{"to the internet", ours, peer{address: "203.0.113.9"}, 80, corev1.ProtocolTCP, false},
			{"certgen to kube-apiserver", certgen, controlPlane, 6443, corev1.ProtocolTCP, true},
			{"certgen to the server", certgen, ours, port, corev1.ProtocolTCP, true},
			{"certgen to etcd", certgen, pod("etcd-system", "10.244.3.1", nil), 2379, corev1.ProtocolTCP, false},
			{"a neighbour to kube-apiserver", neighbour, controlPlane, 6443, corev1.ProtocolTCP, false},
			// Tests the evaluation: no policy selects this peer.
			{"another pod to kube-apiserver", stranger, controlPlane, 6443, corev1.ProtocolTCP, true},
		} {
			got := allowed(t, policies, networkingv1.PolicyTypeIngress, tc.from, tc.to, tc.port, tc.protocol) &&
				allowed(t, policies, networkingv1.PolicyTypeEgress, tc.from, tc.to, tc.port, tc.protocol)
			if got != tc.want {
				t.Errorf("%s: %s: got %t, want %t", v.name, tc.name, got, tc.want)
			}
		}
	}
}
