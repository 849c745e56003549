// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// defaultServicePort is kube-aggregator's, for APIServices that name none.
const defaultServicePort = 443

// backend is the Service of the first APIService that has one.
func (s *set) backend() (certs.Service, bool) {
	for _, a := range all[*apiregistrationv1.APIService](s) {
		if ref := a.Spec.Service; ref != nil {
			return certs.Service{Name: ref.Name, Namespace: ref.Namespace}, true
		}
	}
	return certs.Service{}, false
}

func (s *set) service(namespace, name string) *corev1.Service {
	for _, svc := range all[*corev1.Service](s) {
		if svc.Namespace == namespace && svc.Name == name {
			return svc
		}
	}
	return nil
}

// checkBackend: kube-aggregator finds an address behind each APIService.
func checkBackend(s *set) []verify.Finding {
	var out []verify.Finding
	for _, a := range all[*apiregistrationv1.APIService](s) {
		ref := a.Spec.Service
		if ref == nil {
			continue // kube-apiserver serves it itself
		}
		found := func(format string, args ...any) {
			out = append(out, finding("APIService/"+a.Name, format, args...))
		}
		svc := s.service(ref.Namespace, ref.Name)
		if svc == nil {
			found("the Service %s/%s is not among the manifests", ref.Namespace, ref.Name)
			continue
		}
		switch {
		case svc.Spec.ClusterIP == corev1.ClusterIPNone:
			found("the Service %s/%s is headless; kube-aggregator has no address to dial", svc.Namespace, svc.Name)
		case svc.Spec.Type == corev1.ServiceTypeExternalName:
			found("the Service %s/%s has the type ExternalName; the agent would resolve it, with its DNS, and with aggregator routing it is refused", svc.Namespace, svc.Name)
		}
		port := int32(defaultServicePort)
		if ref.Port != nil {
			port = *ref.Port
		}
		i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
		if i < 0 {
			found("the Service %s/%s has no port %d", svc.Namespace, svc.Name, port)
			continue
		}
		out = append(out, s.checkEndpoints(a.Name, svc, svc.Spec.Ports[i])...)
	}
	return out
}

// checkEndpoints: kube-aggregator looks for the Service's port by its name in EndpointSlices, even when it dials the ClusterIP.
func (s *set) checkEndpoints(apiService string, svc *corev1.Service, port corev1.ServicePort) []verify.Finding {
	var out []verify.Finding
	for _, slice := range all[*discoveryv1.EndpointSlice](s) {
		if slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		if !slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return p.Name != nil && *p.Name == port.Name || p.Name == nil && port.Name == ""
		}) {
			out = append(out, finding("APIService/"+apiService, "the EndpointSlice %s has no port with the name %q", slice.Name, port.Name))
		}
	}
	if port.TargetPort.Type != intstr.String || len(svc.Spec.Selector) == 0 {
		return out
	}
	for _, w := range s.workloads() {
		if w.selects(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector)) && containerPort(w, port.TargetPort.StrVal) == 0 {
			out = append(out, finding("APIService/"+apiService, "no container of %s has a port with the name %s", w, port.TargetPort.StrVal))
		}
	}
	return out
}

// containerPort returns the number of a named port, or 0.
func containerPort(w *workload, name string) int32 {
	for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
		for _, p := range c.Ports {
			if p.Name == name {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// targetPort returns the number of a Service's port at a workload's pods, or 0.
func targetPort(w *workload, p corev1.ServicePort) int32 {
	switch {
	case p.TargetPort.Type == intstr.String:
		return containerPort(w, p.TargetPort.StrVal)
	case p.TargetPort.IntVal != 0:
		return p.TargetPort.IntVal
	}
	return p.Port
}

// frontDoor is a Service's port that leads to the agents' port of a server.
type frontDoor struct {
	service *corev1.Service
	port    corev1.ServicePort
}

// serversBehind lists the Services' ports at which agents find servers.
func (s *set) serversBehind() []frontDoor {
	var out []frontDoor
	for _, svc := range all[*corev1.Service](s) {
		for _, p := range s.servers {
			if len(svc.Spec.Selector) == 0 || !p.selects(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector)) {
				continue
			}
			for _, port := range svc.Spec.Ports {
				if int(targetPort(p.workload, port)) == p.options.number("agent-port") {
					out = append(out, frontDoor{svc, port})
				}
			}
		}
	}
	return out
}

// checkFrontDoor: agents reach servers before anything else is ready, at the port that they dial.
func checkFrontDoor(s *set) []verify.Finding {
	var out []verify.Finding
	doors := s.serversBehind()
	for _, d := range doors {
		if !d.service.Spec.PublishNotReadyAddresses {
			out = append(out, finding("Service/"+d.service.Name,
				"publishNotReadyAddresses is not true: agents wait for a kube-apiserver that waits for them"))
		}
	}
	for _, a := range s.agents {
		dialled := a.options.number("proxy-server-port")
		for _, p := range s.servers {
			if len(doors) == 0 && dialled != p.options.number("agent-port") {
				out = append(out, verify.Finding{Object: a.String(), Severity: verify.Warning,
					Evidence: fmt.Sprintf("--proxy-server-port=%d, servers have --agent-port=%d; right only if a load balancer between them changes the port",
						dialled, p.options.number("agent-port"))})
			}
		}
		if len(doors) > 0 && !slices.ContainsFunc(doors, func(d frontDoor) bool { return int(d.port.Port) == dialled }) {
			out = append(out, finding(a.String(), "--proxy-server-port=%d, and the Service %s has another port in front of the servers", dialled, doors[0].service.Name))
		}
	}
	return out
}
