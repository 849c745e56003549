// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
)

// webhookServer is an HTTPS server for webhooks. Each has a path; its answers come from a function, and what it was asked
// is kept.
type webhookServer struct {
	url     string
	ca      []byte
	mu      sync.Mutex
	answers map[string]webhookAnswer
	asked   map[string][]*admissionv1.AdmissionRequest
}

// webhookAnswer fills in the response to a request; it may also write to the connection itself, and returns false then.
type webhookAnswer func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) bool

// verdict answers every request with this.
func verdict(response admissionv1.AdmissionResponse) webhookAnswer {
	return func(_ http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) bool {
		review.Response = response.DeepCopy()
		review.Response.UID = review.Request.UID
		return true
	}
}

// allow lets everything pass, jsonPatch changes it too.
var allow = verdict(admissionv1.AdmissionResponse{Allowed: true})

func patchAnswer(patch string) webhookAnswer {
	return verdict(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: new(admissionv1.PatchTypeJSONPatch)})
}

func newWebhookServer(t *testing.T) *webhookServer {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: "webhook-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.IssueServing(certs.ServingOptions{IPs: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s := &webhookServer{ca: ca.CertPEM, answers: map[string]webhookAnswer{}, asked: map[string][]*admissionv1.AdmissionRequest{}}
	server := httptest.NewUnstartedServer(s)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not trust it is a case of the tests
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *webhookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	kind := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil || review.GroupVersionKind() != kind {
		http.Error(w, fmt.Sprintf("no AdmissionReview v1: %v", err), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], review.Request)
	answer := s.answers[r.URL.Path]
	s.mu.Unlock()
	if answer(w, r, review) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // an answer that is not complete is an error to the one who asked
	}
}

// take returns what a webhook was asked since the last time.
func (s *webhookServer) take(h webhook) []*admissionv1.AdmissionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked[h.path()]
	delete(s.asked, h.path())
	return asked
}

// webhook is a configuration with one webhook about the objects of a case in a namespace.
type webhook struct {
	name, label string
	mutating    bool
	rule        admissionregistrationv1.RuleWithOperations
	failure     admissionregistrationv1.FailurePolicyType
	conditions  []admissionregistrationv1.MatchCondition
	// reinvocation is for mutating ones: Never unless set.
	reinvocation admissionregistrationv1.ReinvocationPolicyType
	// timeout is in seconds, 10 unless set.
	timeout int32
	// ca and url are those of the server unless set.
	ca     []byte
	url    string
	answer webhookAnswer
}

func (h webhook) path() string { return "/" + h.name }

// full is the name that errors show.
func (h webhook) full() string { return h.name + ".webhook.example.com" }

// apply makes the configuration until the end of the test.
func (h webhook) apply(t *testing.T, s *webhookServer, namespace string) {
	t.Helper()
	s.mu.Lock()
	s.answers[h.path()] = h.answer
	s.mu.Unlock()
	if h.url == "" {
		h.url = s.url + h.path()
	}
	if h.ca == nil {
		h.ca = s.ca
	}
	if h.failure == "" {
		h.failure = admissionregistrationv1.Fail
	}
	if h.reinvocation == "" {
		h.reinvocation = admissionregistrationv1.NeverReinvocationPolicy
	}
	if h.timeout == 0 {
		h.timeout = 10
	}
	hook := admissionregistrationv1.MutatingWebhook{
		Name: h.full(), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &h.url, CABundle: h.ca},
		Rules: []admissionregistrationv1.RuleWithOperations{h.rule}, FailurePolicy: &h.failure, MatchConditions: h.conditions, TimeoutSeconds: &h.timeout,
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: h.label}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
		AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &h.reinvocation,
	}
	meta := metav1.ObjectMeta{Name: namespace + "-" + h.name}
	client := adminClient(t, shared).AdmissionregistrationV1()
	var err error
	remove := client.MutatingWebhookConfigurations().Delete
	if h.mutating {
		_, err = client.MutatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{hook}}, metav1.CreateOptions{})
	} else {
		remove = client.ValidatingWebhookConfigurations().Delete
		_, err = client.ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: hook.Name, ClientConfig: hook.ClientConfig, Rules: hook.Rules, FailurePolicy: hook.FailurePolicy, MatchConditions: hook.MatchConditions,
				TimeoutSeconds: hook.TimeoutSeconds, NamespaceSelector: hook.NamespaceSelector, ObjectSelector: hook.ObjectSelector,
				SideEffects: hook.SideEffects, AdmissionReviewVersions: hook.AdmissionReviewVersions,
			}}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(context.WithoutCancel(t.Context()), meta.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove webhook: %v", err)
		}
	})
}

// waitForWebhooks makes one more of each sort and waits until both are asked: those that were made before are known too then.
func waitForWebhooks(t *testing.T, s *webhookServer, namespace string) {
	t.Helper()
	last := []webhook{
		{name: "last-mutating", label: "last", mutating: true, rule: rule("engines", onCreate), answer: allow},
		{name: "last-validating", label: "last", rule: rule("engines", onCreate), answer: allow},
	}
	for _, h := range last {
		h.apply(t, s, namespace)
	}
	client := newLabelled(t, shared, engineCase, namespace, "last")
	shared.Eventually(t, "the webhooks to be known", patience, func(context.Context) error {
		if _, err := client.create("w", nil, dryRun); err != nil {
			return err
		}
		for _, h := range last {
			if len(s.take(h)) == 0 {
				return errors.New(h.name + " is not asked")
			}
		}
		return nil
	})
}

// wasRefused returns an error unless err has this code and reason, and each part in its message.
func wasRefused(err error, code int32, reason metav1.StatusReason, parts ...string) error {
	status := errorStatus(err)
	missing := slices.DeleteFunc(parts, func(part string) bool { return strings.Contains(status.Message, part) })
	if status.Code != code || status.Reason != reason || len(missing) > 0 {
		return fmt.Errorf("got %s with code %d and reason %s, want %d %s with %q", fmt.Sprint(err), status.Code, status.Reason, code, reason, missing)
	}
	return nil
}
