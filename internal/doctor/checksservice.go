// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// checkServices checks the Service of each APIService as kube-aggregator does, and then the pods.
func checkServices(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		s := backendOf(a)
		b := f.Backends[s]
		if b == nil {
			return nil
		}
		if b.NotFound {
			return []Finding{about(a, "S01", serviceObject(s), serviceObject(s)+" is not found")}
		}
		if b.Service == nil || b.Service.Spec.Type == corev1.ServiceTypeExternalName {
			return nil
		}
		i := slices.IndexFunc(b.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == portOf(a) })
		if i < 0 {
			return []Finding{checkPort(a, b.Service)}
		}
		name := b.Service.Spec.Ports[i].Name
		if !b.SlicesRead || hasReadyEndpoint(b, name) {
			return nil
		}
		return append(endpointCauses(a, b, b.Service.Spec.Ports[i]), about(a, "K12", serviceObject(s),
			fmt.Sprintf("%d EndpointSlices, none with a ready address at the port %q", len(b.Slices), name)))
	})
}

func checkPort(a apiregistrationv1.APIService, service *corev1.Service) Finding {
	var ports []string
	for _, p := range service.Spec.Ports {
		ports = append(ports, strconv.Itoa(int(p.Port)))
	}
	if len(ports) == 0 { // as a headless Service may
		return about(a, "S02", "", serviceObject(backendOf(a))+" has no ports", "servicePort",
			strconv.Itoa(int(portOf(a))))
	}
	return about(a, "S02", "", fmt.Sprintf("the APIService names the port %d, %s has %s", portOf(a),
		serviceObject(backendOf(a)), strings.Join(ports, ", ")), "servicePort", ports[0])
}

// hasReadyEndpoint reports whether an EndpointSlice has a ready address at the port of this name.
// An empty name stands for any port.
func hasReadyEndpoint(b *Backend, port string) bool {
	for _, slice := range b.Slices {
		for _, p := range slice.Ports {
			if port != "" && ptr.Deref(p.Name, "") != port {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					return true
				}
			}
		}
	}
	return false
}

// endpointCauses returns the reasons for which a Service has no ready endpoint at a port.
func endpointCauses(a apiregistrationv1.APIService, b *Backend, port corev1.ServicePort) []Finding {
	s := backendOf(a)
	if finding := checkPortNames(a, b, port.Name); finding != nil {
		return []Finding{*finding}
	}
	if addresses, terminating := countEndpoints(b); terminating > 0 && terminating == addresses {
		return []Finding{about(a, "S09", serviceObject(s), fmt.Sprintf("all %d endpoints are terminating", terminating))}
	}
	if !b.PodsRead {
		return nil
	}
	if len(b.Pods) == 0 {
		return []Finding{about(a, "S04", serviceObject(s),
			fmt.Sprintf("no pod in the namespace %s has the labels %v", s.Namespace, b.Service.Spec.Selector))}
	}
	if finding := checkTargetPort(a, b, port); finding != nil {
		return []Finding{*finding}
	}
	if slices.ContainsFunc(b.Pods, podReady) {
		return nil
	}
	id := "S05"
	if !slices.ContainsFunc(b.Pods, func(pod corev1.Pod) bool { return !startFails(pod) }) {
		id = "S15"
	}
	return []Finding{about(a, id, "Pod "+s.Namespace+"/"+b.Pods[0].Name, podText(b.Pods[0]), "pod", b.Pods[0].Name)}
}

// countEndpoints returns the number of endpoints, and of those that are terminating.
func countEndpoints(b *Backend) (all, terminating int) {
	for _, slice := range b.Slices {
		for _, e := range slice.Endpoints {
			all++
			if ptr.Deref(e.Conditions.Terminating, false) {
				terminating++
			}
		}
	}
	return all, terminating
}

// checkTargetPort returns a finding about a targetPort of a name that no container has, or nil if
// there is none.
func checkTargetPort(a apiregistrationv1.APIService, b *Backend, port corev1.ServicePort) *Finding {
	var names []string
	number := "PORT"
	for _, pod := range b.Pods {
		for _, container := range pod.Spec.Containers {
			for _, p := range container.Ports {
				names, number = append(names, p.Name), strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	if port.TargetPort.Type != intstr.String || slices.Contains(names, port.TargetPort.StrVal) {
		return nil
	}
	finding := about(a, "S08", serviceObject(backendOf(a)), fmt.Sprintf(
		"the targetPort is %q, the ports of the containers are %q", port.TargetPort.StrVal, names),
		"containerPort", number, "portIndex", strconv.Itoa(slices.Index(b.Service.Spec.Ports, port)))
	return &finding
}

// checkPortNames returns a finding about a port of a ready EndpointSlice with a name that no port
// of the Service has, or nil if there is none.
func checkPortNames(a apiregistrationv1.APIService, b *Backend, want string) *Finding {
	s := backendOf(a)
	for _, slice := range b.Slices {
		if !hasReadyEndpoint(&Backend{Slices: []discoveryv1.EndpointSlice{slice}}, "") {
			continue
		}
		for i, p := range slice.Ports {
			name := ptr.Deref(p.Name, "") // the default in the API
			if slices.ContainsFunc(b.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name }) {
				continue
			}
			finding := about(a, "S03", "EndpointSlice "+slice.Namespace+"/"+slice.Name, fmt.Sprintf(
				"the port of the EndpointSlice is named %q, that of %s %q", name, serviceObject(s), want),
				"slice", slice.Name, "portName", want, "portIndex", strconv.Itoa(i))
			return &finding
		}
	}
	return nil
}

func podReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// startFails reports whether a pod has no node, or a container waits for something other than its
// next restart, such as its image.
func startFails(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending &&
		(slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		}) || slices.ContainsFunc(containerStatuses(pod), func(c corev1.ContainerStatus) bool {
			return c.State.Waiting != nil && c.State.Waiting.Reason != "CrashLoopBackOff"
		}))
}

func containerStatuses(pod corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// podText describes why a pod is not ready.
func podText(pod corev1.Pod) string {
	texts := []string{"the phase of the pod is " + string(pod.Status.Phase)}
	for _, c := range containerStatuses(pod) {
		if w := c.State.Waiting; w != nil {
			texts = append(texts, fmt.Sprintf("container %s waits (%s: %s)", c.Name, w.Reason, w.Message))
		}
		if t := c.LastTerminationState.Terminated; t != nil {
			texts = append(texts, fmt.Sprintf("the last run of %s exited with %d (%s)", c.Name, t.ExitCode, t.Reason))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			texts = append(texts, fmt.Sprintf("%s is False: %s", c.Type, c.Message))
		}
	}
	return strings.Join(texts, "; ")
}
