// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/frontproxy"
)

// unavailable is the ID of the finding about a condition Available that is not True. It is a
// symptom unless nothing explains it.
const unavailable = "A01"

// checks find problems in facts. They are pure functions, in the order of the layers.
var checks = []func(*Facts) []Finding{
	checkTrust, checkAvailable, checkCRDs, checkShadows, checkServices, checkCABundles, checkResponses,
	checkPermissions, checkReviews, checkWebhooks, checkResources, checkDiscovery, checkOpenAPI, checkNamespaces,
}

// Check returns the findings, those of the same ID and object merged.
func (f *Facts) Check() []Finding {
	var out []Finding
	for _, check := range checks {
		out = append(out, check(f)...)
	}
	return merge(out)
}

// perAPIService returns the findings about each APIService.
func perAPIService(f *Facts, check func(apiregistrationv1.APIService) []Finding) []Finding {
	var out []Finding
	for _, a := range f.APIServices {
		out = append(out, check(a)...)
	}
	return out
}

// trustIDs are the IDs of findings by the weakness of the trust ConfigMap.
var trustIDs = map[string]string{frontproxy.AnyName: "P02", frontproxy.SharedCA: "P03", "": "P04"}

func checkTrust(f *Facts) []Finding {
	if f.Trust == nil && !f.TrustNotFound {
		return nil
	}
	var out []Finding
	for _, p := range frontproxy.Evaluate(f.Trust).Problems {
		out = append(out, newFinding(trustIDs[p.Weakness],
			"ConfigMap "+frontproxy.Namespace+"/"+frontproxy.ConfigMapName, nil, nil, "the ConfigMap "+p.Text))
	}
	return out
}

func checkAvailable(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if isAvailable(a) {
			return nil
		}
		return []Finding{about(a, unavailable, "", conditionText(a))}
	})
}

func conditionText(a apiregistrationv1.APIService) string {
	c := available(a)
	if c.Type == "" {
		return "kube-apiserver has not set the condition Available"
	}
	return fmt.Sprintf("condition Available is %s (%s): %s", c.Status, c.Reason, c.Message)
}

func checkCRDs(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, crd := range f.CRDs {
			if crd.Group == a.Spec.Group && slices.Contains(crd.Versions, a.Spec.Version) {
				out = append(out, about(a, "A02", "", fmt.Sprintf("CustomResourceDefinition %s serves %s", crd.Name,
					groupVersionOf(a)), "crd", crd.Name))
			}
		}
		return out
	})
}

// checkShadows compares the resources of an API with those of other groups, which clients prefer
// by the priority of the group.
func checkShadows(f *Facts) []Finding {
	priorities := map[string]int32{}
	for _, a := range f.All {
		priorities[a.Spec.Group] = max(priorities[a.Spec.Group], a.Spec.GroupPriorityMinimum)
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, resource := range f.Responses[a.Name].Resources {
			for _, other := range f.groupsWith(resource) {
				if other != a.Spec.Group && priorities[other] < priorities[a.Spec.Group] {
					out = append(out, about(a, "A03", "", fmt.Sprintf(
						"%s of the group %q has the priority %d, and that of %q has %d", resource, a.Spec.Group,
						priorities[a.Spec.Group], other, priorities[other]), "resource", resource))
				}
			}
		}
		return out
	})
}

// groupsWith returns the groups whose discovery lists the resource.
func (f *Facts) groupsWith(resource string) []string {
	var out []string
	if f.Discovery == nil {
		return nil
	}
	for _, group := range f.Discovery.Items {
		if slices.ContainsFunc(group.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool {
			return slices.ContainsFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool {
				return r.Resource == resource
			})
		}) {
			out = append(out, group.Name)
		}
	}
	return out
}

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
		return append(endpointCauses(a, b, name), about(a, "K12", serviceObject(s),
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
func endpointCauses(a apiregistrationv1.APIService, b *Backend, port string) []Finding {
	s := backendOf(a)
	if finding := checkPortNames(a, b, port); finding != nil {
		return []Finding{*finding}
	}
	if !b.PodsRead {
		return nil
	}
	if len(b.Pods) == 0 {
		return []Finding{about(a, "S04", serviceObject(s),
			fmt.Sprintf("no pod in the namespace %s has the labels %v", s.Namespace, b.Service.Spec.Selector))}
	}
	if slices.ContainsFunc(b.Pods, podReady) {
		return nil
	}
	return []Finding{about(a, "S05", "Pod "+s.Namespace+"/"+b.Pods[0].Name, podText(b.Pods[0]), "pod", b.Pods[0].Name)}
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

// podText describes why a pod is not ready.
func podText(pod corev1.Pod) string {
	texts := []string{"the phase of the pod is " + string(pod.Status.Phase)}
	for _, c := range pod.Status.ContainerStatuses {
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

func checkCABundles(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		cas := certs.LenientBundle(a.Spec.CABundle)
		switch {
		case a.Spec.InsecureSkipTLSVerify:
			return []Finding{about(a, "K01", "", "spec.insecureSkipTLSVerify is true")}
		case len(cas) == 0:
			return []Finding{about(a, "K02", "", fmt.Sprintf("spec.caBundle has %d bytes and no certificate",
				len(a.Spec.CABundle)))}
		}
		var expired []string
		for _, ca := range cas {
			if f.Now.After(ca.NotAfter) {
				expired = append(expired, fmt.Sprintf("%s expired at %s", ca.Subject, ca.NotAfter.UTC().Format(time.RFC3339)))
			}
		}
		if len(expired) == 0 {
			return nil
		}
		finding := about(a, "K04", "", strings.Join(expired, "; "))
		if len(expired) < len(cas) {
			finding.Severity = verify.Warning // as in a rotation that has not removed it yet
		}
		return []Finding{finding}
	})
}

// objectReasons are the reasons that kube-aggregator derives from objects which checkServices has
// read later.
var objectReasons = []string{"ServiceNotFound", "ServicePortError", "EndpointsNotFound", "MissingEndpoints"}

// checkResponses recognizes the error of the availability check or of the response.
func checkResponses(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		text, other := conditionText(a), ""
		if isAvailable(a) {
			r := f.Responses[a.Name]
			if r.Text == "" || r.Status == http.StatusForbidden { // of the user of the doctor
				return nil
			}
			text, other = fmt.Sprintf("GET /apis/%s: %d: %s", groupVersionOf(a), r.Status, r.Text), "K08"
		} else if b := f.Backends[backendOf(a)]; slices.Contains(objectReasons, available(a).Reason) &&
			(b.NotFound || b.SlicesRead || b.Service != nil && b.Service.Spec.Type == corev1.ServiceTypeExternalName) {
			return nil
		}
		return recognize(a, text, other)
	})
}

// recognize returns the finding to which a message leads. If it leads to none, recognize returns
// one with the other ID, or none without an ID.
func recognize(a apiregistrationv1.APIService, text, other string) []Finding {
	id, object := classify(text), ""
	var more []string
	if id != "" && entry(id).Layer == "permissions" {
		if account := deniedAccount.FindStringSubmatch(text); account != nil {
			object = "ServiceAccount " + account[1] + "/" + account[2]
			more = []string{"accountNamespace", account[1], "account", account[2]}
		} else {
			id = "" // the fix needs the ServiceAccount
		}
	}
	if id = cmp.Or(id, other); id == "" {
		return nil
	}
	if layer := entry(id).Layer; layer == "service" || layer == "tls" && id != "K03" {
		object = serviceObject(backendOf(a))
	}
	return []Finding{about(a, id, object, text, more...)}
}

// deniedAccount matches the ServiceAccount in the message of a denied request.
var deniedAccount = regexp.MustCompile(`User "system:serviceaccount:([^:"]+):([^:"]+)"`)

// checkPermissions reports the permissions that a server lacks and is known to need.
func checkPermissions(f *Facts) []Finding {
	var out []Finding
	for _, account := range f.Accounts {
		for _, p := range account.Denied {
			if need := f.need(account, p); need != "" {
				out = append(out, newFinding(p.ID, account.object(), account.APIServices,
					map[string]string{"account": account.Name, "accountNamespace": account.Namespace},
					fmt.Sprintf("a SubjectAccessReview denies it to %s; %s", p, need)))
			}
		}
	}
	return out
}

// need returns the evidence that a server of the account needs the permission, or "" without any.
// A server may authenticate and authorize requests by itself, and then it needs none of them.
func (f *Facts) need(account Account, p Permission) string {
	if p.ID == "R01" && len(account.ElsewhereBound) > 0 {
		return "the RoleBinding " + strings.Join(account.ElsewhereBound, ", ") + " is in the wrong namespace"
	}
	for _, a := range f.APIServices {
		if !slices.Contains(account.APIServices, a.Name) {
			continue
		}
		if review := f.Responses[a.Name].Review; classify(review) == "R03" && mentions(review, p.resource()) {
			return "the server reports: " + review
		}
		if p.ID == "R01" && classify(conditionText(a)) == "D03" {
			return conditionText(a)
		}
	}
	return ""
}

// Skip is a check that led to no result.
type Skip struct {
	Layer  string `json:"layer"`
	ID     string `json:"id"` // of the finding that the check did not rule out
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// skips returns the permissions that a server lacks, if nothing shows that it needs them.
func (f *Facts) skips() []Skip {
	out := []Skip{}
	for _, account := range f.Accounts {
		for _, p := range account.Denied {
			if f.need(account, p) == "" {
				out = append(out, Skip{entry(p.ID).Layer, p.ID, account.object(),
					"it may not " + p.String() + ", but nothing shows that its server needs to"})
			}
		}
	}
	return out
}

// checkReviews reports the permissions that a server of this kit lacks by its own account.
func checkReviews(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		review := f.Responses[a.Name].Review
		if !isAvailable(a) || classify(review) != "R03" {
			return nil
		}
		return []Finding{about(a, "R03", serviceObject(backendOf(a)), review)}
	})
}

func checkWebhooks(f *Facts) []Finding {
	var out []Finding
	for _, w := range f.Webhooks {
		if w.Problem != "" {
			out = append(out, newFinding("W01", w.object(), w.APIServices, map[string]string{
				"webhookKind": strings.ToLower(w.Kind), "webhook": w.Configuration,
			}, fmt.Sprintf("webhook %s has failurePolicy Fail, and %s", w.Name, w.Problem)))
		}
	}
	return out
}

func checkResources(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		if r := f.Responses[a.Name]; r.Status != http.StatusOK || r.Text != "" || len(r.Resources) > 0 {
			return nil
		}
		return []Finding{about(a, "D06", "", "GET /apis/"+groupVersionOf(a)+": 200 with no resources")}
	})
}

// checkDiscovery compares the aggregated discovery, which clients read, with the APIServices.
func checkDiscovery(f *Facts) []Finding {
	if f.Discovery == nil {
		return nil
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		text := "GET /apis does not list " + groupVersionOf(a)
		for _, group := range f.Discovery.Items {
			for _, v := range group.Versions {
				if group.Name != a.Spec.Group || v.Version != a.Spec.Version {
					continue
				}
				if v.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
					return nil
				}
				text = "GET /apis lists " + groupVersionOf(a) + " with the freshness Stale"
			}
		}
		if isAvailable(a) && !f.settled(a) {
			return nil
		}
		return []Finding{about(a, "D07", "", text)}
	})
}

func checkOpenAPI(f *Facts) []Finding {
	if f.OpenAPI == nil {
		return nil
	}
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		document, listed := f.OpenAPI[a.Name]
		switch {
		case !f.settled(a):
			return nil
		case !listed:
			return []Finding{about(a, "O01", "", "GET /openapi/v3 does not list apis/"+groupVersionOf(a))}
		case document.Err != "":
			return []Finding{about(a, "O01", "", "GET /openapi/v3/apis/"+groupVersionOf(a)+": "+document.Err)}
		case len(document.Dangling) > 0:
			return []Finding{about(a, "O02", "", "missing schemas: "+strings.Join(document.Dangling, ", "))}
		}
		return nil
	})
}

// deletionConditions are the conditions of a namespace whose deletion does not go on.
var deletionConditions = []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure,
	corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure}

func checkNamespaces(f *Facts) []Finding {
	return perAPIService(f, func(a apiregistrationv1.APIService) []Finding {
		var out []Finding
		for _, n := range f.Terminating {
			for _, c := range n.Status.Conditions {
				if c.Status == corev1.ConditionTrue && slices.Contains(deletionConditions, c.Type) &&
					mentions(c.Message, groupVersionOf(a)) {
					out = append(out, about(a, "N01", "Namespace "+n.Name, c.Message, "stuck", n.Name))
				}
			}
		}
		return out
	})
}

// mentions reports whether the text contains the name, and not only as a part of a longer one.
func mentions(text, name string) bool {
	return regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(name) + `(\W|$)`).MatchString(text)
}
