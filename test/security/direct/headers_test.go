// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
)

// webhook registers an admission webhook at the relay, for gadgets with the label.
func (s *server) webhook(t *testing.T, label string) {
	t.Helper()
	client, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: label},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "direct.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new(s.url + "/webhook"),
				CABundle: certs.Bundle{s.ca.Certificate}.PEM()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{"workshop.example.com"},
					APIVersions: []string{"*"}, Resources: []string{"gadgets"}},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.script("/webhook", func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		body, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(body, &review); err != nil {
			t.Errorf("decode AdmissionReview: %v", err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
}

// TestS08HeadersAreNotForwarded checks that credentials and claims in a request's headers are not
// forwarded. The requests that the server itself sends to kube-apiserver and to webhooks, and its
// log, contain none of them. A receiver could take them for claims of the server.
func TestS08HeadersAreNotForwarded(t *testing.T) {
	t.Parallel()
	args, log := auditArgs(t)
	s := newServer(t, append(args, "-v=10")...)
	const label = "direct-s08"
	s.webhook(t, label)
	header := http.Header{
		"X-Remote-User": {"ann"}, "X-Remote-Group": {"bosses"}, "X-Remote-Extra-Scope": {"claimed-extra"},
		"X-Remote-Canary": {"canary-claim"},
		"Authorization":   {"Bearer canary-token"}, "Cookie": {"session=canary-cookie"},
		"Proxy-Authorization": {"Basic canary-basic"},
		"Impersonate-User":    {""}, "X-Forwarded-User": {"canary-forwarded"},
	}
	body := `{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"generateName":"s08-","labels":{"` +
		label + `":""}},"spec":{"purpose":"none"}}`
	var created response
	// The webhook's registration takes a moment to arrive.
	for len(s.requests("/webhook")) == 0 {
		created = s.try(frontProxy(t), http.MethodPost, protected, header, body)
		if created.status != http.StatusCreated {
			t.Fatalf("create: %s, want 201", created)
		}
	}
	for _, req := range s.requests("") {
		for name, values := range req.header {
			if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || name == "Cookie" ||
				strings.Contains(strings.Join(values, ""), "canary") {
				t.Errorf("%s %s has the header %s: %q", req.method, req.path, name, values)
			}
		}
		if strings.Contains(string(req.body), "canary") || strings.Contains(req.path, "canary") {
			t.Errorf("%s %s has a header's value in it: %.1000q", req.method, req.path, req.body)
		}
	}
	if got := s.tokens(t); len(got) != 0 {
		t.Errorf("TokenReviews of %q, want none: the front proxy comes first", got)
	}
	event := auditOf(t, log, created.header.Get("Audit-Id"))
	if got := event.User; got.Username != "ann" || strings.Join(got.Extra["scope"], "") != "claimed-extra" {
		t.Errorf("user of the audit event: %+v, want ann with the extra", got)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"audit log": string(data), "server's log": s.end(),
		"response": created.body} {
		for _, canary := range []string{"canary-token", "canary-cookie", "canary-basic", "canary-claim",
			"canary-forwarded"} {
			if at := strings.Index(text, canary); at >= 0 {
				t.Errorf("%s in the %s: %.200q", canary, what, text[max(0, at-100):])
			}
		}
	}
}
