// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// webhookRequest is what a webhook is to be asked: the operation, its options' kind, and what it sees of the object and of the
// old one, "none" if there is none. A status that was reported is shown behind a slash.
type webhookRequest struct {
	operation        admissionv1.Operation
	subresource      string
	name             string
	dryRun           bool
	object, old      string
	kindOfTheOptions string
}

// TestEngineWebhookRequests: each write asks each webhook once, about the version that the client used, as the user that the client
// is. Once: kube-apiserver, which passes the request on, does not ask too.
func TestEngineWebhookRequests(t *testing.T) {
	s, namespace := newWebhookServer(t), newNamespace(t, shared)
	every := rule("engines", onCreate, onUpdate, onDelete)
	every.Resources = append(every.Resources, "engines/status")
	hooks := []webhook{
		{name: "validating", label: "requests", rule: every, answer: allow},
		{name: "mutating", label: "requests", mutating: true, rule: every, answer: allow},
	}
	for _, h := range hooks {
		h.apply(t, s, namespace)
	}
	waitForWebhooks(t, s, namespace)

	config := rest.CopyConfig(adminConfig(t, shared))
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "jane doe", UID: "8aee5a4a", Groups: []string{"makers", "system:masters"}, Extra: map[string][]string{"example.com/scope": {"a", "b c"}},
	}
	user := whoAmI(t, config)
	engines := labelled{engineCase.client(t, config, namespace), engineCase, "requests", t.Context(), t}
	none := "none"
	for _, tc := range []struct {
		name string
		do   func() error
		want webhookRequest
	}{
		{"create as a dry run", func() error { _, err := engines.create("w", nil, dryRun); return err },
			webhookRequest{admissionv1.Create, "", "w", true, "2", none, "CreateOptions"}},
		{"create", func() error { _, err := engines.create("w", nil); return err },
			webhookRequest{admissionv1.Create, "", "w", false, "2", none, "CreateOptions"}},
		{"update", func() error {
			obj, err := engines.client.Get(t.Context(), "w", metav1.GetOptions{})
			if err != nil {
				return err
			}
			obj.Object["spec"].(map[string]any)["replicas"] = int64(3)
			_, err = engines.client.Update(t.Context(), obj, metav1.UpdateOptions{})
			return err
		}, webhookRequest{admissionv1.Update, "", "w", false, "3", "2", "UpdateOptions"}},
		// The options are those of the operation that the patch comes to.
		{"patch", func() error { _, err := engines.patch("w", `{"spec":{"replicas":4}}`); return err },
			webhookRequest{admissionv1.Update, "", "w", false, "4", "3", "UpdateOptions"}},
		{"patch of the status", func() error { _, err := engines.patch("w", `{"status":{"replicas":1}}`, "status"); return err },
			webhookRequest{admissionv1.Update, "status", "w", false, "4/1", "4", "UpdateOptions"}},
		{"apply that creates", func() error {
			obj := engineCase.object(t, "applied")
			obj.SetLabels(map[string]string{caseLabel: "requests"})
			_, err := engines.client.Apply(t.Context(), "applied", obj, metav1.ApplyOptions{FieldManager: "test"})
			return err
		}, webhookRequest{admissionv1.Create, "", "applied", false, "2", none, "CreateOptions"}},
		{"delete as a dry run", func() error {
			return engines.client.Delete(t.Context(), "w", metav1.DeleteOptions{DryRun: dryRun.DryRun})
		}, webhookRequest{admissionv1.Delete, "", "w", true, none, "4/1", "DeleteOptions"}},
		{"delete", func() error { return engines.client.Delete(t.Context(), "w", metav1.DeleteOptions{}) },
			webhookRequest{admissionv1.Delete, "", "w", false, none, "4/1", "DeleteOptions"}},
		// The request names no object; the old one does.
		{"delete of a collection", func() error {
			return engines.client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		}, webhookRequest{admissionv1.Delete, "", "", false, none, "2", "DeleteOptions"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.do(); err != nil {
				t.Fatal(err)
			}
			for _, h := range hooks {
				asked := s.take(h)
				if len(asked) != 1 {
					t.Errorf("webhook %s was asked %d times, want once: %+v", h.name, len(asked), asked)
					continue
				}
				checkRequest(t, h.name, asked[0], tc.want, namespace, user)
			}
		})
	}
}

func checkRequest(t *testing.T, hook string, got *admissionv1.AdmissionRequest, want webhookRequest, namespace string, user authenticationv1.UserInfo) {
	t.Helper()
	gvr := engineCase.resource
	kind := metav1.GroupVersionKind{Group: gvr.Group, Version: gvr.Version, Kind: "Engine"}
	res := metav1.GroupVersionResource{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource}
	if diff := cmp.Diff(&admissionv1.AdmissionRequest{
		Kind: kind, RequestKind: &kind, Resource: res, RequestResource: &res, SubResource: want.subresource, RequestSubResource: want.subresource,
		Name: want.name, Namespace: namespace, Operation: want.operation, UserInfo: user, DryRun: &want.dryRun,
	}, got, cmpopts.IgnoreFields(admissionv1.AdmissionRequest{}, "UID", "Object", "OldObject", "Options"),
		cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" || got.UID == "" {
		t.Errorf("webhook %s: UID %q, want one; request (-want +got):\n%s", hook, got.UID, diff)
	}
	var options metav1.TypeMeta
	if err := json.Unmarshal(got.Options.Raw, &options); err != nil {
		t.Errorf("webhook %s: options %s: %v", hook, got.Options.Raw, err)
	}
	seen := webhookRequest{got.Operation, got.SubResource, got.Name, *got.DryRun, replicas(t, got.Object.Raw), replicas(t, got.OldObject.Raw), options.Kind}
	if diff := cmp.Diff(want, seen, cmp.AllowUnexported(webhookRequest{})); diff != "" {
		t.Errorf("webhook %s: objects and options (-want +got):\n%s", hook, diff)
	}
}

// replicas tells of an object what webhookRequest shows, if it has the form of the version that the client used.
func replicas(t *testing.T, raw []byte) string {
	t.Helper()
	if raw == nil {
		return "none"
	}
	var obj struct {
		metav1.TypeMeta
		Spec   struct{ Replicas int }
		Status struct{ Replicas int }
	}
	if err := json.Unmarshal(raw, &obj); err != nil || obj.APIVersion != engineCase.resource.GroupVersion().String() || obj.Kind != "Engine" {
		t.Errorf("object %s: %v; want a Engine of %s", raw, err, engineCase.resource.GroupVersion())
	}
	if obj.Status.Replicas > 0 {
		return fmt.Sprintf("%d/%d", obj.Spec.Replicas, obj.Status.Replicas)
	}
	return fmt.Sprint(obj.Spec.Replicas)
}

// whoAmI is what kube-apiserver knows of the user of a configuration.
func whoAmI(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}
