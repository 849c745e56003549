// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The checks of reviews are for kinds that are created and not stored, such as
// SelfSubjectAccessReview: the response to the create request is the only way to read the object.

// review requires a resource that has the verb create, but not the verb get.
func review(f *discovered, _ *Target) string {
	switch {
	case !slices.Contains(f.resource.Verbs, "create"):
		return "the resource has no verb create"
	case slices.Contains(f.resource.Verbs, "get"):
		return "the resource has the verb get"
	}
	return ""
}

// reviewed stops the check unless a response is an object of the kind that is not stored.
func (s *session) reviewed(a *response, obj *unstructured.Unstructured) {
	if obj.GetKind() != s.kind() || obj.GetAPIVersion() != s.apiVersion() {
		s.fatalf("%s: got %s %s, want %s %s", a.request, obj.GetAPIVersion(), obj.GetKind(), s.apiVersion(), s.kind())
	}
	if version := obj.GetResourceVersion(); version != "" {
		s.errorf("%s: the resourceVersion is %q, want none", a.request, version)
	}
}

// reviewSample returns the sample as it is: reviews need no name, and some reject all metadata.
func (s *session) reviewSample() *unstructured.Unstructured {
	obj := s.r.target.Sample.DeepCopy()
	unstructured.RemoveNestedField(obj.Object, "status")
	return obj
}

// postReview creates a review in the namespace of the sample, or in the namespace default.
func (s *session) postReview(options ...option) *response {
	namespace := cmp.Or(s.r.target.Sample.GetNamespace(), "default")
	return s.do("POST", s.collectionIn(s.r.discovered.gvr.Version, namespace),
		append([]option{body(s.reviewSample())}, options...)...)
}

// acceptedReview stops the check unless a review is created.
func (s *session) acceptedReview(options ...option) *response {
	return s.want(s.postReview(options...), 200, 201)
}

var reviewChecks = []Check{
	{"review/create", Required, conventions,
		"The response to a POST is an object of the kind, as JSON, without a resourceVersion.", []need{review},
		func(s *session) {
			a := s.acceptedReview()
			s.mediaType(a, "application/json")
			s.reviewed(a, a.object())
		}},
	{"review/again", Required, conventions, "The same object can be created again, because it is not stored.",
		[]need{review}, func(s *session) {
			s.acceptedReview()
			s.acceptedReview()
		}},
	{"review/yaml", Required, concepts, "A YAML body is accepted, and the response is YAML if the client requests YAML.",
		[]need{review}, func(s *session) {
			data, err := yaml.Marshal(s.reviewSample().Object)
			if err != nil {
				s.fatalf("marshal the sample: %v", err)
			}
			a := s.acceptedReview(text("application/yaml", string(data)), accept("application/yaml"))
			s.mediaType(a, "application/yaml")
			got := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(a.Body, &got.Object); err != nil {
				s.fatalf("%s: the body is no YAML (%v): %.300q", a.request, err, a.Body)
			}
			s.reviewed(a, got)
		}},
	{"review/protobuf", Optional, concepts, "The response is protobuf if the client requests protobuf.", []need{review},
		func(s *session) { s.mediaType(s.acceptedReview(accept(protobufType)), protobufType) }},
	{"review/dry-run", Required, concepts, "A dry run returns an object of the kind, and other values are rejected.",
		[]need{review}, func(s *session) {
			a := s.acceptedReview(query("dryRun", "All"))
			s.reviewed(a, a.object())
			s.expectRefused(s.postReview(query("dryRun", "Some")), 400, 422)
		}},
	{"review/kind", Required, concepts, "A body of another kind is rejected with 400.", []need{review},
		func(s *session) {
			s.expectRefused(s.postReview(body(map[string]any{"apiVersion": s.apiVersion(), "kind": s.kind() + "List",
				"items": []any{}})), 400)
		}},
	{"review/invalid-bodies", Required, concepts, "Invalid bodies are rejected with 400, 415 or 422.", []need{review},
		func(s *session) {
			for _, data := range []string{"[]", "0", "{", `{"kind":1}`, "\xff\xfe"} {
				s.expectRefused(s.postReview(text("application/json", data)), 400, 422)
			}
			s.expectRefused(s.postReview(text("text/plain", "{}")), 415)
		}},
	{"review/unknown-field", Required, kep("2885-server-side-unknown-field-validation"),
		"With fieldValidation=Strict, an unknown field is rejected with 400, and the message contains its name.",
		[]need{review}, func(s *session) {
			obj := s.reviewSample()
			obj.Object["noSuchField"] = "x"
			s.unknown(s.postReview(body(obj), query("fieldValidation", "Strict")))
		}},
}
