// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// auditTests holds additional audit tests of the kinds. Their files fill it. log is the path of
// the audit log.
var auditTests = map[string]func(t *testing.T, e *envtest.Environment, log string){}

func init() { flaggedTopics = append(flaggedTopics, flaggedTopic{"audit", prepareAudit}) }

// prepareAudit writes an audit policy: writes at level RequestResponse, gets at level Metadata,
// and no lists, watches or other requests.
func prepareAudit(t *testing.T) ([]string, func(*testing.T, *envtest.Environment)) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	group := install.GroupVersions()[0].Group
	if err := os.WriteFile(policy, []byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [list, watch]}
- {level: Metadata, verbs: [get], resources: [{group: `+group+`}]}
- {level: RequestResponse, resources: [{group: `+group+`}]}
- {level: None}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log},
		func(t *testing.T, e *envtest.Environment) {
			for _, k := range kindCases {
				t.Run(k.resource.Resource, func(t *testing.T) { testAudit(t, e, k, log) })
			}
			for name, test := range auditTests {
				t.Run(name, func(t *testing.T) { test(t, e, log) })
			}
		}
}

// testAudit checks that the audit log of the extension API server records the user, the request
// and the result, under the audit ID that the client and kube-apiserver use for the request.
func testAudit(t *testing.T, e *envtest.Environment, k kindCase, log string) {
	config := e.Admin(t)
	// kube-apiserver resolves impersonation. The extension API server sees only the resulting
	// user.
	config.Impersonate = rest.ImpersonationConfig{UserName: uniqueName(t), UID: "77",
		Groups: []string{"system:masters"}, Extra: map[string][]string{"scope": {"all"}}}
	ids := auditIDs(config)
	namespace, name := e.NewNamespace(t), uniqueName(t)
	client, obj := k.client(t, config, namespace), k.object(t, name)
	created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, again := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(again) {
		t.Errorf("create again: %v, want AlreadyExists", again)
	}
	_, listed := client.List(t.Context(), metav1.ListOptions{})
	_, got := client.Get(t.Context(), name, metav1.GetOptions{})
	_, patched := client.Patch(t.Context(), name, types.MergePatchType, []byte(k.change), metav1.PatchOptions{})
	if err := errors.Join(listed, got, patched, client.Delete(t.Context(), name, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}

	kind := created.GetKind()
	events := eventsOf(t, e, log, *ids)
	want := []string{
		"RequestResponse create 201 " + kind + " " + kind,
		"RequestResponse create 409 " + kind + " Status",
		"none", // the list
		"Metadata get 200 - -",
		"RequestResponse patch 200 without-kind " + kind,
		"RequestResponse delete 200 DeleteOptions Status",
	}
	if !k.namespaced {
		namespace = ""
	}
	for i, event := range events {
		if got := eventSummary(event); got != want[i] {
			t.Errorf("event %d: %s, want %s", i, got, want[i])
		}
		if event == nil {
			continue
		}
		ref := auditv1.ObjectReference{Resource: k.resource.Resource, Namespace: namespace, Name: name,
			APIGroup: k.resource.Group, APIVersion: k.resource.Version}
		if diff := cmp.Diff(ref, *event.ObjectRef, cmpopts.IgnoreFields(auditv1.ObjectReference{}, "UID",
			"ResourceVersion")); diff != "" {
			t.Errorf("object of event %d (-want +got):\n%s", i, diff)
		}
		user := authenticationv1.UserInfo{
			Username: config.Impersonate.UserName, UID: "77",
			Groups: []string{"system:masters", "system:authenticated"},
			Extra:  map[string]authenticationv1.ExtraValue{"scope": {"all"}},
		}
		if diff := cmp.Diff(user, event.User); diff != "" || event.ImpersonatedUser != nil {
			t.Errorf("user of event %d, impersonating %v (-want +got):\n%s", i, event.ImpersonatedUser, diff)
		}
	}
	var response struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(events[0].ResponseObject.Raw, &response); err != nil ||
		response.Metadata.UID != created.GetUID() {
		t.Errorf("response object of the create: UID %s (%v), want %s", response.Metadata.UID, err, created.GetUID())
	}
}

// auditIDs collects the audit IDs of all later requests of clients with the config.
func auditIDs(config *rest.Config) *[]string {
	var ids []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				ids = append(ids, resp.Header.Get("Audit-Id"))
			}
			return resp, err
		})
	})
	return &ids
}

// eventsOf waits for the event of the last request, and returns the events of all requests, nil
// for a request without one.
func eventsOf(t *testing.T, e *envtest.Environment, log string, ids []string) []*auditv1.Event {
	t.Helper()
	events := make([]*auditv1.Event, len(ids))
	e.Eventually(t, "the event of the last request", envtest.WaitTimeout, func(context.Context) error {
		data, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			event := &auditv1.Event{}
			if err := json.Unmarshal([]byte(line), event); err != nil {
				return fmt.Errorf("%w in %s", err, line)
			}
			if i := slices.Index(ids, string(event.AuditID)); i >= 0 {
				events[i] = event
			}
		}
		if events[len(ids)-1] == nil {
			return fmt.Errorf("no event with the ID %s in:\n%s", ids[len(ids)-1], data)
		}
		return nil
	})
	return events
}

// eventSummary returns "LEVEL VERB CODE KIND-OF-REQUEST KIND-OF-RESPONSE".
func eventSummary(event *auditv1.Event) string {
	if event == nil {
		return "none"
	}
	kind := func(object *runtime.Unknown) string {
		var meta metav1.TypeMeta
		switch {
		case object == nil:
			return "-"
		case json.Unmarshal(object.Raw, &meta) != nil || meta.Kind == "":
			return "without-kind"
		}
		return meta.Kind
	}
	return fmt.Sprintf("%s %s %d %s %s", event.Level, event.Verb, event.ResponseStatus.Code, kind(event.RequestObject),
		kind(event.ResponseObject))
}
