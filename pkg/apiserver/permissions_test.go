// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/extension-apiserver/internal/filters"
)

// fakeCluster is a cluster that serves and grants everything except the APIs and permissions in
// its fields.
type fakeCluster struct {
	unserved, denied sets.Set[string] // for example "namespaces" and "list namespaces"
	fails            error
	slow             time.Duration
	reviews          int
}

func (c *fakeCluster) client() *fake.Clientset {
	client := fake.NewClientset()
	served := map[string]*metav1.APIResourceList{}
	for _, api := range requiredAPIs {
		gv := api.resource.GroupVersion().String()
		if c.unserved.Has(api.resource.Resource) {
			continue
		}
		if served[gv] == nil {
			served[gv] = &metav1.APIResourceList{GroupVersion: gv}
			client.Resources = append(client.Resources, served[gv])
		}
		served[gv].APIResources = append(served[gv].APIResources, metav1.APIResource{Name: api.resource.Resource})
	}
	client.PrependReactor("create", "selfsubjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			c.reviews++
			if c.slow > 0 {
				<-time.After(c.slow)
			}
			review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = !c.denied.Has(strings.TrimSuffix(a.Verb+" "+a.Resource+"/"+a.Subresource, "/"))
			return true, review, c.fails
		})
	return client
}

func TestFindUnserved(t *testing.T) {
	for _, tc := range []struct {
		name           string
		unserved, want []string
	}{
		{"all served", nil, nil},
		{"policies not served", []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},
			[]string{"MutatingAdmissionPolicy"}},
		{"one of two not served", []string{"mutatingadmissionpolicybindings"}, []string{"MutatingAdmissionPolicy"}},
		{"quota not served", []string{"resourcequotas", "resourcequotas/status"}, []string{"ResourceQuota"}},
		{"status of quota not served", []string{"resourcequotas/status"}, []string{"ResourceQuota"}},
		// Discovery does not list the group version at all.
		{"flow control not served", []string{"flowschemas", "prioritylevelconfigurations"},
			[]string{"APIPriorityAndFairness"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := (&fakeCluster{unserved: sets.New(tc.unserved...)}).client()
			off, err := findUnserved(client)
			if err != nil {
				t.Fatal(err)
			}
			if got := sets.List(off); !cmp.Equal(got, append([]string{}, tc.want...)) {
				t.Errorf("parts that are off: got %v, want %v", got, tc.want)
			}
			for _, api := range newPermissions(client, off).needed {
				if off.Has(api.part) {
					t.Errorf("got a permission for %s, which needs none: %s", api.part, api.resource)
				}
			}
		})
	}
}

// TestDiscoveryFails: a failed discovery request is an error and does not mean that an API is not
// served.
func TestDiscoveryFails(t *testing.T) {
	client := (&fakeCluster{}).client()
	broken := errors.New("no route")
	client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true,
			nil, broken
	})
	if off, err := findUnserved(client); off != nil || !errors.Is(err, broken) {
		t.Errorf("got %v and error %v, want none and %v", off, err, broken)
	}
}

// TestPermissions: the check reports each missing permission, passes when it is granted, and
// fails when it is revoked.
func TestPermissions(t *testing.T) {
	c := &fakeCluster{denied: sets.New("watch namespaces", "list flowschemas")}
	p := newPermissions(c.client(), nil)
	check := func(when, want string) {
		t.Helper()
		got := ""
		if err := p.Check(nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	check("before the first look", "the permissions of this server have not been reviewed yet")
	p.review(t.Context())
	missing := "this server lacks permissions: watch namespaces (for NamespaceLifecycle), list " +
		"flowschemas.flowcontrol.apiserver.k8s.io (for APIPriorityAndFairness); " +
		"grant the rules in manifests/base/rbac.yaml and manifests/api"
	check("with two rules missing", missing)
	c.fails = errors.New("no route")
	p.review(t.Context())
	check("while kube-apiserver does not respond", missing)
	c.fails, c.denied = nil, nil
	p.review(t.Context())
	check("when all is granted", "")
	c.fails = errors.New("no route")
	p.review(t.Context())
	check("when all permissions are granted and kube-apiserver does not respond", "")
	c.fails = nil
	for _, api := range requiredAPIs {
		for _, verb := range api.verbs {
			c.denied = sets.New(verb + " " + api.resource.Resource)
			p.review(t.Context())
			permission := fmt.Sprintf("%s %s (for %s)", verb, api.resource.GroupResource(), api.part)
			check("without "+permission, "this server lacks permissions: "+permission+
				"; grant the rules in manifests/base/rbac.yaml and manifests/api")
		}
	}
}

// TestPermissionsPeriod: missing permissions are reviewed every second, granted ones every
// minute, with one SelfSubjectAccessReview per permission.
func TestPermissionsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &fakeCluster{denied: sets.New("get namespaces")}
		p := newPermissions(c.client(), nil)
		go p.run(ctx)
		look := 0
		for _, api := range requiredAPIs {
			look += len(api.verbs)
		}
		within := func(d time.Duration) int {
			synctest.Wait()
			before := c.reviews
			<-time.After(d)
			synctest.Wait()
			return (c.reviews - before) / look
		}
		if got := within(10 * time.Second); got < 9 || got > 10 {
			t.Errorf("looks in 10 s while a rule is missing: got %d, want 9 or 10", got)
		}
		c.denied = nil
		within(2 * time.Second)
		if err := p.problem(); err != nil {
			t.Errorf("2 s after the grant: got %v, want all well", err)
		}
		if got := within(10 * time.Minute); got < 9 || got > 10 {
			t.Errorf("looks in 10 min while all is granted: got %d, want 9 or 10", got)
		}
	})
}

// TestRejectWritesWithoutPermissions: while a permission is missing, writes are rejected, because
// admission cannot be applied. Reads continue.
func TestRejectWritesWithoutPermissions(t *testing.T) {
	denied := &fakeCluster{denied: sets.New("list namespaces")}
	granted := newPermissions((&fakeCluster{}).client(), nil)
	missing := newPermissions(denied.client(), nil)
	unchecked := newPermissions(denied.client(), nil)
	granted.review(t.Context())
	missing.review(t.Context())
	resource := func(verb string) *genericapirequest.RequestInfo {
		return &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: "workshop.example.com",
			APIVersion: "v1", Resource: "gadgets"}
	}
	for _, tc := range []struct {
		name        string
		permissions *permissions
		info        *genericapirequest.RequestInfo
		want        string // a part of the message, "" if the request passes
	}{
		{"create", missing, resource("create"), "list namespaces"},
		{"update", missing, resource("update"), "list namespaces"},
		{"patch", missing, resource("patch"), "list namespaces"},
		{"delete", missing, resource("delete"), "list namespaces"},
		{"deletecollection", missing, resource("deletecollection"), "list namespaces"},
		{"get", missing, resource("get"), ""},
		{"list", missing, resource("list"), ""},
		{"watch", missing, resource("watch"), ""},
		{"no resource", missing, &genericapirequest.RequestInfo{Verb: "create", Path: "/healthz"}, ""},
		{"create before the first look", unchecked, resource("create"), "not been reviewed yet"},
		{"create when all is granted", granted, resource("create"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handler := filters.WithWriteCheck(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusTeapot)
				}), tc.permissions.problem, testCodecs)
			req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), tc.info),
				http.MethodPost, "/", nil)
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, req)
			if tc.want == "" {
				if rec.Code != http.StatusTeapot {
					t.Errorf("got %d %s, want the request to pass", rec.Code, rec.Body)
				}
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(rec.Body.Bytes(), &status); err != nil {
				t.Fatalf("body is no Status: %v\n%s", err, rec.Body)
			}
			if rec.Code != http.StatusServiceUnavailable || status.Kind != "Status" ||
				status.Code != http.StatusServiceUnavailable ||
				status.Reason != metav1.StatusReasonServiceUnavailable || !strings.Contains(status.Message, tc.want) {
				t.Errorf("got %d %s, want a Status 503 ServiceUnavailable with %q", rec.Code, rec.Body, tc.want)
			}
		})
	}
}
