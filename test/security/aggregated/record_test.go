// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestS49Audit checks that each request is in the audit logs of both servers under one ID, and
// that both identify the user. The server logs the effective user, kube-apiserver also the
// impersonating one.
func TestS49Audit(t *testing.T) {
	members := unique("auditors")
	allow(t, shared, ofGroup(members), "", everything)
	jane := unique("jane")
	certificate, err := shared.Config(jane, members)
	if err != nil {
		t.Fatal(err)
	}
	bob := &user.DefaultInfo{Name: unique("bob"), UID: "uid-ö", Groups: []string{members, "two"},
		Extra: map[string][]string{"example.com/scope": {"a", "b"}}}
	impersonated := rest.CopyConfig(shared.Admin(t))
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: bob.Name, UID: bob.UID, Groups: bob.Groups,
		Extra: bob.Extra}
	account := accountConfig(t, shared)
	allow(t, shared, ofGroup("system:serviceaccounts"), "", everything)
	for name, tc := range map[string]struct {
		config       *rest.Config
		impersonator string
	}{
		"client certificate":   {certificate, ""},
		"ServiceAccount token": {account, ""},
		"impersonation":        {impersonated, envtest.Admin},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := shared.NewNamespace(t)
			newWidget(t, shared, namespace, "w")
			server := newEndpoint(t, tc.config)
			self := server.Must(t, http.MethodPost, selfReviews, nil, []byte(selfReview))
			for _, r := range recorded(namespace) {
				t.Run(r.name, func(t *testing.T) {
					var header http.Header
					if r.method == http.MethodPatch {
						header = media(types.MergePatchType)
					}
					got := server.Do(t, r.method, r.path, header, r.body)
					if got.Status != r.status {
						t.Errorf("%s, want %d", got, r.status)
					}
					compareRecords(t, got.Header.Get("Audit-Id"), r, selfInfo(t, self.Body), tc.impersonator)
				})
			}
		})
	}
}

// record is a request that both servers must log.
type record struct {
	name, method, path string
	body               []byte
	status             int
	ref                auditv1.ObjectReference
}

func recorded(namespace string) []record {
	base := widgetsOf(namespace)
	item := base + "/w"
	ref := func(resource, subresource, name string) auditv1.ObjectReference {
		r := auditv1.ObjectReference{APIGroup: group, APIVersion: strings.TrimPrefix(current, "/apis/"+group+"/"),
			Resource: resource, Subresource: subresource, Name: name}
		if resource == "widgets" {
			r.Namespace = namespace
		}
		return r
	}
	return []record{
		{"create", "POST", base, widgetJSON(namespace, "v"), 201, ref("widgets", "", "v")},
		{"get", "GET", item, nil, 200, ref("widgets", "", "w")},
		{"list", "GET", base, nil, 200, ref("widgets", "", "")},
		{"watch", "GET", base + "?watch=1&timeoutSeconds=1", nil, 200, ref("widgets", "", "")},
		{"update", "PUT", item, widgetJSON(namespace, "w"), 200, ref("widgets", "", "w")},
		{"patch", "PATCH", item, []byte(`{"metadata":{"labels":{"x":"y"}}}`), 200, ref("widgets", "", "w")},
		{"patch", "PATCH", item + "/status", []byte(`{"status":{"observedGeneration":1}}`), 200,
			ref("widgets", "status", "w")},
		{"get", "GET", item + "/scale", nil, 200, ref("widgets", "scale", "w")},
		{"delete", "DELETE", base + "/v", nil, 200, ref("widgets", "", "v")},
		{"delete", "DELETE", base + "/nobody", nil, 404, ref("widgets", "", "nobody")},
		{"deletecollection", "DELETE", base + "?labelSelector=none", nil, 200, ref("widgets", "", "")},
		{"create", "POST", current + reviews, reviewJSON, 201, ref("identityreviews", "", "")},
	}
}

func selfInfo(t *testing.T, said []byte) authenticationv1.UserInfo {
	t.Helper()
	var self authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(said, &self); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return self.Status.UserInfo
}

func compareRecords(t *testing.T, id string, r record, who authenticationv1.UserInfo, impersonator string) {
	t.Helper()
	if id == "" {
		t.Fatal("a response without an Audit-Id")
	}
	kube, own := completed(t, logs.kube, id), completed(t, logs.server, id)
	if diff := cmp.Diff(who, own.User); diff != "" || own.ImpersonatedUser != nil {
		t.Errorf("user in our server's log, impersonating %v (-want +got):\n%s", own.ImpersonatedUser, diff)
	}
	if impersonator == "" {
		if diff := cmp.Diff(who, kube.User); diff != "" || kube.ImpersonatedUser != nil {
			t.Errorf("user in kube-apiserver's log, impersonating %v (-want +got):\n%s", kube.ImpersonatedUser, diff)
		}
	} else if diff := cmp.Diff(&who, kube.ImpersonatedUser); diff != "" || kube.User.Username != impersonator {
		t.Errorf("kube-apiserver's log has %s impersonating (-want +got):\n%s", kube.User.Username, diff)
	}
	// kube-apiserver does not read the body, which has the name of a created object.
	server := cmpopts.IgnoreFields(auditv1.ObjectReference{}, "UID", "ResourceVersion")
	if diff := cmp.Diff(&r.ref, own.ObjectRef, server); diff != "" {
		t.Errorf("object in our server's log (-want +got):\n%s", diff)
	}
	for log, event := range map[string]auditv1.Event{"kube-apiserver": kube, "our server": own} {
		if event.Verb != r.name || event.ResponseStatus == nil || int(event.ResponseStatus.Code) != r.status {
			t.Errorf("%s: %s with %+v, want %s with %d", log, event.Verb, event.ResponseStatus, r.name, r.status)
		}
	}
	path := func(event auditv1.Event) string { path, _, _ := strings.Cut(event.RequestURI, "?"); return path }
	if path(own) != path(kube) || slices.Contains(own.SourceIPs, "") {
		t.Errorf("our server logged %s from %v, kube-apiserver %s", own.RequestURI, own.SourceIPs, kube.RequestURI)
	}
}

// completed waits for the final event of a request.
func completed(t *testing.T, log, id string) auditv1.Event {
	t.Helper()
	var found auditv1.Event
	shared.Eventually(t, "the event "+id+" in "+log, envtest.WaitTimeout, func(context.Context) error {
		all, err := events(log)
		if err != nil {
			return err
		}
		number := 0
		for _, event := range all {
			if string(event.AuditID) == id && event.Stage == auditv1.StageResponseComplete {
				found = event
				number++
			}
		}
		if number != 1 {
			return fmt.Errorf("%d events, want one", number)
		}
		return nil
	})
	return found
}
