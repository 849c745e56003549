// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/extension-apiserver/internal/certs/verify"
)

// namespaceLabels are those of a Namespace that is here, and the one that every namespace has.
func (s *set) namespaceLabels(name string) labels.Set {
	out := labels.Set{corev1.LabelMetadataName: name}
	for _, ns := range all[*corev1.Namespace](s) {
		if ns.Name == name {
			out = labels.Merge(out, ns.Labels)
		}
	}
	return out
}

// matches tells whether a selector has these labels. Kubernetes refuses one that cannot be parsed.
func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(set)
}

// checkNetworkPolicies: with konnectivity, kube-apiserver arrives from an agent.
func checkNetworkPolicies(s *set) []verify.Finding {
	service, ok := s.backend()
	if !ok {
		return nil
	}
	svc := s.service(service.Namespace, service.Name)
	if svc == nil || len(svc.Spec.Selector) == 0 {
		return nil
	}
	var out []verify.Finding
	for _, w := range s.workloads() {
		if !w.selects(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector)) {
			continue
		}
		for _, a := range s.agents {
			for _, port := range svc.Spec.Ports {
				if names, admitted := s.admits(w, a, targetPort(w, port)); !admitted {
					out = append(out, finding(w.String(), "the policies %s let no connection of the agents (%s) to port %d in", strings.Join(names, ", "), a, targetPort(w, port)))
				}
			}
		}
	}
	return out
}

// admits does what a network plugin does: pods that no policy selects are free, else one rule must fit. It also returns the policies.
func (s *set) admits(w *workload, agent *program, port int32) (names []string, admitted bool) {
	admitted = true
	for _, p := range all[*networkingv1.NetworkPolicy](s) {
		// Ingress is what a policy without types is for.
		ingress := len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		if !ingress || p.Namespace != w.meta.Namespace || !matches(&p.Spec.PodSelector, w.pod.Labels) {
			continue
		}
		names = append(names, p.Name)
		if slices.ContainsFunc(p.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			return opens(rule.Ports, w, port) && s.from(rule.From, p.Namespace, agent)
		}) {
			return names, true
		}
		admitted = false
	}
	return names, admitted
}

func opens(ports []networkingv1.NetworkPolicyPort, w *workload, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port == nil {
			return true
		}
		number := p.Port.IntVal
		if p.Port.Type == intstr.String {
			number = containerPort(w, p.Port.StrVal)
		}
		return port == number || p.EndPort != nil && number <= port && port <= *p.EndPort
	})
}

// from: agents in the network of their node are known by an address, which nobody knows here; any ipBlock counts for them. Whether one
// matches a pod is up to the network plugin, so for other agents none counts.
func (s *set) from(peers []networkingv1.NetworkPolicyPeer, own string, agent *program) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil || agent.pod.Spec.HostNetwork {
			return p.IPBlock != nil && agent.pod.Spec.HostNetwork
		}
		namespace := agent.meta.Namespace == own
		if p.NamespaceSelector != nil {
			namespace = matches(p.NamespaceSelector, s.namespaceLabels(agent.meta.Namespace))
		}
		return namespace && (p.PodSelector == nil || matches(p.PodSelector, agent.pod.Labels))
	})
}

// webhook is what mutating and validating webhooks have in common.
type webhook struct {
	object, name        string
	client              admissionregistrationv1.WebhookClientConfig
	policy              *admissionregistrationv1.FailurePolicyType
	rules               []admissionregistrationv1.RuleWithOperations
	namespaces, objects *metav1.LabelSelector
}

func (s *set) webhooks() []webhook {
	var out []webhook
	for _, c := range all[*admissionregistrationv1.MutatingWebhookConfiguration](s) {
		for _, w := range c.Webhooks {
			out = append(out, webhook{"MutatingWebhookConfiguration/" + c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector})
		}
	}
	for _, c := range all[*admissionregistrationv1.ValidatingWebhookConfiguration](s) {
		for _, w := range c.Webhooks {
			out = append(out, webhook{"ValidatingWebhookConfiguration/" + c.Name, w.Name, w.ClientConfig, w.FailurePolicy, w.Rules, w.NamespaceSelector, w.ObjectSelector})
		}
	}
	return out
}

// checkWebhooks: a webhook behind a Service is called through an agent, so it must not decide whether there is one.
func checkWebhooks(s *set) []verify.Finding {
	var out []verify.Finding
	for _, a := range s.agents {
		for _, w := range s.webhooks() {
			fails := w.policy == nil || *w.policy == admissionregistrationv1.Fail
			if w.client.Service == nil || !fails || !slices.ContainsFunc(w.rules, coversPods) {
				continue
			}
			if w.namespaces != nil && !matches(w.namespaces, s.namespaceLabels(a.meta.Namespace)) || w.objects != nil && !matches(w.objects, a.pod.Labels) {
				continue
			}
			out = append(out, finding(w.object, "%s decides about the agents' pods, and is called through an agent", w.name))
		}
	}
	return out
}

func coversPods(r admissionregistrationv1.RuleWithOperations) bool {
	has := func(list []string, values ...string) bool {
		return slices.ContainsFunc(list, func(v string) bool { return slices.Contains(values, v) })
	}
	creates := slices.Contains(r.Operations, admissionregistrationv1.Create) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
	return creates && has(r.APIGroups, "", "*") && has(r.Resources, "pods", "*", "*/*")
}
