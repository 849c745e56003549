// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// policy creates a ValidatingAdmissionPolicy that denies requests for objects with the label
// policed of the check, if the expression is false.
func (s *session) policy(operations []any, expression string) {
	s.policyWith(operations, expression, "Deny", nil)
}

// policyWith is policy with another action and additional fields in the spec.
func (s *session) policyWith(operations []any, expression, action string, spec map[string]any) {
	all := map[string]any{"validations": []any{map[string]any{"expression": expression,
		"message": "denied by the policy of the check"}}}
	maps.Copy(all, spec)
	s.bind("Validating", "validatingadmissionpolicies", operations, all,
		map[string]any{"validationActions": []any{action}})
}

// bind creates an admission policy for objects with the label policed of the check, and its
// binding.
func (s *session) bind(kind, resource string, operations []any, spec, binding map[string]any) {
	name := s.name()
	spec["failurePolicy"], binding["policyName"] = "Fail", name
	spec["matchConstraints"] = map[string]any{
		"objectSelector": map[string]any{"matchLabels": map[string]any{ownLabel: s.label(), "policed": "yes"}},
		"resourceRules": []any{map[string]any{
			"apiGroups": []any{s.r.discovered.gvr.Group}, "apiVersions": []any{s.r.discovered.gvr.Version},
			"operations": operations, "resources": []any{s.r.discovered.gvr.Resource},
		}},
	}
	const path = "/apis/admissionregistration.k8s.io/v1/"
	for _, part := range []struct {
		kind, resource string
		spec           map[string]any
	}{{kind + "AdmissionPolicy", resource, spec}, {kind + "AdmissionPolicyBinding",
		strings.TrimSuffix(resource, "policies") + "policybindings", binding}} {
		a := s.do("POST", path+part.resource, body(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": part.kind,
			"metadata": map[string]any{"name": name, "labels": s.labels()}, "spec": part.spec,
		}))
		if a.Code == 403 || a.Code == 404 {
			s.skipf("cannot create %s: %s", part.resource, a)
		}
		s.want(a, 201)
		s.objects = append(s.objects, path+part.resource+"/"+name)
	}
}

// denied waits until the policy rejects a request.
func (s *session) denied(send func() *response) {
	s.eventually("with the policy", func() string {
		a := send()
		if a.Code < 400 {
			if method, _, _ := strings.Cut(a.request, " "); method == "POST" && !strings.Contains(a.request, "dryRun") {
				s.created(a)
			}
			return "the request was allowed"
		}
		if status := s.expectRefused(a, 422, 403); !strings.Contains(status.Message,
			"denied by the policy of the check") {
			s.errorf("the message is %q, want that of the policy", status.Message)
		}
		return ""
	})
}

var admissionChecks = []Check{
	{"admission/create", Required, policies, "A ValidatingAdmissionPolicy applies to creates.",
		[]need{verbs("create")}, func(s *session) {
			s.policy([]any{"CREATE"}, "object.metadata.?annotations['allowed'].orValue('no') == 'yes'")
			s.denied(func() *response { return s.do("POST", s.collection(), body(s.policed())) })
			allowed := s.policed()
			allowed.SetAnnotations(map[string]string{"allowed": "yes"})
			s.created(s.want(s.do("POST", s.collection(), body(allowed)), 201))
		}},
	{"admission/dry-run", Required, policies,
		"A ValidatingAdmissionPolicy applies to dry runs.", []need{verbs("create")},
		func(s *session) {
			s.policy([]any{"CREATE"}, "false")
			s.denied(func() *response {
				return s.do("POST", s.collection(), body(s.policed()),
					query("dryRun", "All"))
			})
		}},
	{"admission/update", Required, policies,
		"A ValidatingAdmissionPolicy sees the old and the new object of an update.",
		[]need{verbs("create", "patch")}, func(s *session) {
			obj := s.create(labelled("policed", "yes"), labelled("count", "1"))
			s.policy([]any{"UPDATE"}, "object.metadata.labels['count'] == oldObject.metadata.labels['count']")
			count := 1
			s.denied(func() *response {
				count++
				return s.do("PATCH", s.path(obj), mergePatch(metadata(
					map[string]any{"labels": map[string]any{"count": fmt.Sprint(count)}})))
			})
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"another": "yes"}}))
		}},
	{"admission/delete", Required, policies, "A ValidatingAdmissionPolicy applies to deletions, and sees the object.",
		[]need{verbs("create", "delete")}, func(s *session) {
			s.policy([]any{"DELETE"},
				"has(oldObject.metadata.annotations) && 'deletable' in oldObject.metadata.annotations")
			var kept *unstructured.Unstructured
			s.denied(func() *response {
				kept = s.create(labelled("policed", "yes"))
				return s.do("DELETE", s.path(kept))
			})
			s.get(kept)
			s.patch(kept, metadata(map[string]any{"annotations": map[string]any{"deletable": ""}}))
			s.want(s.do("DELETE", s.path(kept), query("propagationPolicy", "Background")), 200, 202)
		}},
	{"admission/apply", Required, policies, "A ValidatingAdmissionPolicy applies to an apply that creates an object.",
		[]need{verbs("create", "patch")}, func(s *session) {
			s.policy([]any{"CREATE"}, "false")
			s.denied(func() *response { return s.apply(s.name(), appliers, map[string]any{"policed": "yes"}) })
		}},
	{"admission/variables", Recommended, policies,
		"A ValidatingAdmissionPolicy sees the kind, the user and the operation of the request.",
		[]need{verbs("create")},
		func(s *session) {
			s.policy([]any{"CREATE"},
				fmt.Sprintf("!(request.kind.kind == %q && request.kind.group == %q && request.operation == 'CREATE' && "+
					"request.userInfo.username != '')", s.kind(), s.r.discovered.gvr.Group))
			s.denied(func() *response {
				return s.do("POST", s.collection(), body(s.policed()),
					query("dryRun", "All"))
			})
		}},
	{"admission/warn", Recommended, policies,
		"A ValidatingAdmissionPolicy with the action Warn allows the request, with a warning.",
		[]need{verbs("create")}, func(s *session) {
			s.policyWith([]any{"CREATE"}, "false", "Warn", nil)
			s.eventually("with the policy", func() string {
				if a := s.want(s.do("POST", s.collection(), body(s.policed()), query("dryRun", "All")),
					201); !a.hasWarning(
					"denied by the policy of the check") {
					return fmt.Sprintf("the warnings are %q", a.Header.Values("Warning"))
				}
				return ""
			})
		}},
	{"admission/mutating-policy", Recommended, kep("3962-mutating-admission-policies"),
		"A MutatingAdmissionPolicy changes a new object before it is returned and stored.", []need{verbs("create")},
		func(s *session) {
			s.bind("Mutating", "mutatingadmissionpolicies", []any{"CREATE"}, map[string]any{
				"reinvocationPolicy": "Never", "mutations": []any{map[string]any{"patchType": "JSONPatch",
					"jsonPatch": map[string]any{
						"expression": `[JSONPatch{op: "add", path: "/metadata/labels/mutated", value: "yes"}]`,
					}}},
			}, map[string]any{})
			s.eventually("with the policy", func() string {
				obj := s.created(s.want(s.do("POST", s.collection(), body(s.policed())), 201))
				if obj.GetLabels()["mutated"] != "yes" || s.get(obj).GetLabels()["mutated"] != "yes" {
					return "the object was not changed"
				}
				return ""
			})
		}},
	{"admission/quota", Required, "https://kubernetes.io/docs/concepts/policy/resource-quotas/",
		"A ResourceQuota limits the number of objects in a namespace.", []need{verbs("create"), namespaced},
		func(s *session) {
			// kube-controller-manager overwrites the count of admission with that of its cache,
			// which may be outdated (https://github.com/kubernetes/kubernetes/issues/123434).
			// Occasionally, one object too many is therefore admitted.
			var codes []int
			for range 3 {
				codes = s.createSixOfThree()
				// Some kinds create objects in each new namespace, which count.
				if n := slices.Index(codes, 403); n >= 1 && n <= 3 && !slices.Contains(codes[n:], 201) {
					return
				}
			}
			s.errorf("six creates with a quota of three, for the third time: got %v, want at most three 201 and "+
				"then 403",
				codes)
		}},
}

// createSixOfThree tries to create six objects in a namespace with a quota of three. It returns
// the status codes.
func (s *session) createSixOfThree() []int {
	namespace := s.aNamespace()
	key := "count/" + s.r.discovered.gvr.Resource
	if s.r.discovered.gvr.Group != "" {
		key += "." + s.r.discovered.gvr.Group
	}
	quotas := "/api/v1/namespaces/" + namespace + "/resourcequotas"
	s.want(s.do("POST", quotas, body(map[string]any{
		"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "q"},
		"spec": map[string]any{"hard": map[string]any{key: "3"}},
	})), 201)
	tries := 0
	s.eventually("after the quota was created", func() string {
		// kube-controller-manager counts a quota that is older than its information about the
		// resource only after 5 minutes or when the quota changes.
		if tries++; tries%20 == 0 {
			s.want(s.do("PATCH", quotas+"/q",
				mergePatch(map[string]any{"spec": map[string]any{"hard": map[string]any{"pods": fmt.Sprint(
					tries)}}})), 200, 409)
		}
		got := s.want(s.do("GET", quotas+"/q"), 200).object()
		if _, ok, _ := unstructured.NestedFieldNoCopy(got.Object, "status", "used", key); !ok {
			return "the quota has no usage"
		}
		return ""
	})
	var codes []int
	for range 6 {
		obj := s.object()
		obj.SetNamespace(namespace)
		a := s.do("POST", s.collectionIn(s.r.discovered.gvr.Version, namespace), body(obj))
		codes = append(codes, a.Code)
		if a.Code == 201 {
			s.created(a)
		}
	}
	return codes
}

func (s *session) policed() *unstructured.Unstructured {
	obj := s.object()
	labelled("policed", "yes")(obj)
	return obj
}
