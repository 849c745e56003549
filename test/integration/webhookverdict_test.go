// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// statusOf returns the Status of an error, or an empty one.
func errorStatus(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

// TestEngineWebhookVerdicts: what webhooks of the cluster say about our objects is done, and a webhook that does not say anything
// that can be understood stops the request, or not, as its failure policy says.
func TestEngineWebhookVerdicts(t *testing.T) {
	s, namespace := newWebhookServer(t), newNamespace(t, shared)
	created := rule("engines", onCreate)
	// It answers when the client has given up.
	slow := func(_ http.ResponseWriter, r *http.Request, _ *admissionv1.AdmissionReview) bool {
		<-r.Context().Done()
		return false
	}
	const failed = "failed calling webhook"
	passes := func(_ *unstructured.Unstructured, err error) error { return err }
	refused := func(code int32, reason metav1.StatusReason, parts ...string) func(*unstructured.Unstructured, error) error {
		return func(_ *unstructured.Unstructured, err error) error { return wasRefused(err, code, reason, parts...) }
	}
	cases := []struct {
		webhook
		check func(*unstructured.Unstructured, error) error
	}{
		{webhook{name: "deny", answer: verdict(admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: "not today"}})},
			refused(409, metav1.StatusReasonConflict, `admission webhook "deny.webhook.example.com" denied the request: not today`)},
		{webhook{name: "deny-silently", answer: verdict(admissionv1.AdmissionResponse{})},
			refused(400, "", `admission webhook "deny-silently.webhook.example.com" denied the request without explanation`)},
		{webhook{name: "deny-mutating", mutating: true, answer: verdict(admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 403, Message: "no"}})},
			refused(403, "", `admission webhook "deny-mutating.webhook.example.com" denied the request: no`)},
		// The new part gets the default of a quantity that nobody gave.
		{webhook{name: "mutate", mutating: true, answer: patchAnswer(`[{"op":"add","path":"/spec/parts/0","value":{"name":"bolt"}}]`)}, firstPart(part("bolt", 1))},
		{webhook{name: "mutate-invalid", mutating: true, answer: patchAnswer(`[{"op":"replace","path":"/spec/maxReplicas","value":1}]`)},
			refused(422, metav1.StatusReasonInvalid, "spec.replicas: Invalid value: 2: must not be greater than spec.maxReplicas")},
		{webhook{name: "validate-and-patch", answer: patchAnswer(`[{"op":"replace","path":"/spec/maxReplicas","value":7}]`)},
			refused(500, metav1.StatusReasonInternalError, failed, "validating webhook may not return response.patch")},
		{webhook{name: "other-uid", answer: func(_ http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) bool {
			review.Response = &admissionv1.AdmissionResponse{UID: "other", Allowed: true}
			return true
		}}, refused(500, metav1.StatusReasonInternalError, failed, `got "other"`)},
		{webhook{name: "error", answer: func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) bool {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return false
		}}, refused(500, metav1.StatusReasonInternalError, failed, "out of order")},
		{webhook{name: "slow", answer: slow, timeout: 1}, refused(500, metav1.StatusReasonInternalError, failed, "slow?timeout=1s", "context deadline exceeded")},
		{webhook{name: "slow-ignored", answer: slow, timeout: 1, failure: admissionregistrationv1.Ignore}, passes},
		{webhook{name: "down", url: "https://127.0.0.1:1/", answer: allow}, refused(500, metav1.StatusReasonInternalError, failed, "connection refused")},
		{webhook{name: "down-ignored", url: "https://127.0.0.1:1/", answer: allow, failure: admissionregistrationv1.Ignore}, passes},
		{webhook{name: "untrusted", ca: newWebhookServer(t).ca, answer: allow},
			refused(500, metav1.StatusReasonInternalError, failed, "x509: certificate signed by unknown authority")},
	}
	for i := range cases {
		cases[i].rule, cases[i].label = created, cases[i].name
		cases[i].apply(t, s, namespace)
	}
	waitForWebhooks(t, s, namespace)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.check(newLabelled(t, shared, engineCase, namespace, tc.label).create("w", nil, dryRun)); err != nil {
				t.Error(err)
			}
		})
	}
}

// firstPart returns a check that the first part is this.
func firstPart(want map[string]any) func(*unstructured.Unstructured, error) error {
	return func(got *unstructured.Unstructured, err error) error {
		if err != nil {
			return err
		}
		parts, _, err := unstructured.NestedSlice(got.Object, "spec", "parts")
		if err != nil || len(parts) == 0 || !cmp.Equal(any(want), parts[0]) {
			return fmt.Errorf("parts %v (%w), want first %v", parts, err, want)
		}
		return nil
	}
}

// TestEngineWebhookSelection: a webhook is asked about what its selectors and conditions say, in its order, and again if it wants
// to be when another has changed the object after it.
func TestEngineWebhookSelection(t *testing.T) {
	s, namespace, other := newWebhookServer(t), newNamespace(t, shared), newNamespace(t, shared)
	created := rule("engines", onCreate)
	hooks := []webhook{
		{name: "condition", label: "condition", rule: created, answer: verdict(admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"look twice"}}),
			conditions: []admissionregistrationv1.MatchCondition{{Name: "premium", Expression: "object.spec.grade == 'Premium' && request.userInfo.username == 'admin'"}}},
		{name: "every-resource", label: "every-resource", rule: rule("*", onCreate), answer: allow},
		// They are asked in the order of the names of their configurations.
		{name: "order-1", label: "order", mutating: true, rule: created, reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy, answer: allow},
		{name: "order-2", label: "order", mutating: true, rule: created, answer: patchAnswer(`[{"op":"replace","path":"/spec/grade","value":"Premium"}]`)},
		{name: "order-3", label: "order", rule: created, answer: allow},
	}
	byName := map[string]webhook{}
	for _, h := range hooks {
		h.apply(t, s, namespace)
		byName[h.name] = h
	}
	waitForWebhooks(t, s, namespace)
	for _, tc := range []struct {
		name, namespace, label string
		kind                   kindCase
		spec                   map[string]any
		// asked has the grades that each webhook sees, "" for a kind without.
		asked    map[string][]string
		warnings []string
	}{
		{"condition not met", namespace, "condition", engineCase, nil, nil, nil},
		{"condition met", namespace, "condition", engineCase, map[string]any{"grade": "Premium"}, map[string][]string{"condition": {"Premium"}}, []string{"look twice"}},
		{"another label", namespace, "none", engineCase, nil, nil, nil},
		{"another namespace", other, "every-resource", engineCase, nil, nil, nil},
		{"any resource, engine", namespace, "every-resource", engineCase, nil, map[string][]string{"every-resource": {"Standard"}}, nil},
		{"any resource, item", "", "every-resource", itemCase, nil, map[string][]string{"every-resource": {""}}, nil},
		{"several", namespace, "order", engineCase, nil, map[string][]string{"order-1": {"Standard", "Premium"}, "order-2": {"Standard"}, "order-3": {"Premium"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config, got := warned(adminConfig(t, shared))
			client := labelled{tc.kind.client(t, config, tc.namespace), tc.kind, tc.label, t.Context(), t}
			if _, err := client.create("o", tc.spec, dryRun); err != nil {
				t.Fatal(err)
			}
			asked := map[string][]string{}
			for name, h := range byName {
				for _, request := range s.take(h) {
					asked[name] = append(asked[name], grade(t, request))
				}
			}
			if tc.asked == nil {
				tc.asked = map[string][]string{}
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("webhooks that were asked, and the grades that they saw (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, got.got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func grade(t *testing.T, request *admissionv1.AdmissionRequest) string {
	t.Helper()
	var obj struct{ Spec struct{ Grade string } }
	if err := json.Unmarshal(request.Object.Raw, &obj); err != nil {
		t.Fatal(err)
	}
	return obj.Spec.Grade
}
