// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// The words of the API concepts ("Semantics for get and list"), and the two ways to refuse a combination.
const (
	rvMostRecent   = "Most Recent"
	rvAny          = "Any"
	rvNotOlder     = "Not older than"
	rvExact        = "Exact"
	rvContinuation = "Continuation"
	rvBadRequest   = "Invalid, 400 Bad Request"
	rvInvalid      = "Invalid, 422 naming resourceVersionMatch"
)

// listSemantics is the table of the API concepts for list: what a combination of parameters promises, with resourceVersion
// unset, "0" and any other value.
var listSemantics = []struct {
	match               string
	limit, continued    bool
	unset, zero, others string
}{
	{"", false, false, rvMostRecent, rvAny, rvNotOlder},
	{"", true, false, rvMostRecent, rvAny, rvExact},
	{"", true, true, rvContinuation, rvContinuation, rvBadRequest},
	{"", false, true, rvContinuation, rvContinuation, rvBadRequest},
	{"Exact", false, false, rvInvalid, rvInvalid, rvExact},
	{"Exact", true, false, rvInvalid, rvInvalid, rvExact},
	{"Exact", true, true, rvInvalid, rvInvalid, rvInvalid},
	{"NotOlderThan", false, false, rvInvalid, rvAny, rvNotOlder},
	{"NotOlderThan", true, false, rvInvalid, rvAny, rvNotOlder},
	{"NotOlderThan", true, true, rvInvalid, rvInvalid, rvInvalid},
	{"Newest", false, false, rvInvalid, rvInvalid, rvInvalid},
}

// TestEngineListResourceVersion goes through every cell of the table.
func TestEngineListResourceVersion(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		testListSemantics(t, shared, k, namespace)
	})
}

func testListSemantics(t *testing.T, e *envtest.Environment, k readKind, namespace string) {
	h := newHistory(t, e, k, namespace)
	r := newReader(t, e)
	// The first page of the past: its continuation is a page of the past too.
	page := r.get(t, k.path(namespace)+"?limit=1&resourceVersionMatch=Exact&resourceVersion="+h.x).list(t)
	if page.GetContinue() == "" {
		t.Fatalf("the first of two pages has no continue token: %v", page.Object)
	}
	for _, row := range listSemantics {
		for _, cell := range []struct{ resourceVersion, promise string }{
			{"", row.unset}, {"0", row.zero}, {h.x, row.others}, {h.y, row.others},
		} {
			query := url.Values{}
			set := func(name, value string) {
				if value != "" {
					query.Set(name, value)
				}
			}
			set("resourceVersion", cell.resourceVersion)
			set("resourceVersionMatch", row.match)
			if row.limit {
				set("limit", "1")
			}
			if row.continued {
				set("continue", page.GetContinue())
			}
			name := strings.NewReplacer("="+h.x, "=x", "="+h.y, "=y", page.GetContinue(), "TOKEN").Replace(query.Encode())
			t.Run(name+" "+cell.promise, func(t *testing.T) {
				checkPromise(t, h, r.get(t, k.path(namespace)+"?"+query.Encode()), cell.promise, cell.resourceVersion, row.limit)
			})
		}
	}
}

// checkPromise checks the answer to a list with the parameter resourceVersion.
func checkPromise(t *testing.T, h readHistory, a rawAnswer, promise, resourceVersion string, limited bool) {
	t.Helper()
	switch promise {
	case rvBadRequest:
		if status := a.status(t); status.Code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest {
			t.Errorf("got %d %s %q, want 400 BadRequest", status.Code, status.Reason, status.Message)
		}
		return
	case rvInvalid:
		status := a.status(t)
		if status.Code != http.StatusUnprocessableEntity || status.Reason != metav1.StatusReasonInvalid ||
			!strings.HasPrefix(causesOf(status), "resourceVersionMatch: FieldValue") {
			t.Errorf("got %d %s with causes %q, want 422 Invalid with a cause in resourceVersionMatch", status.Code, status.Reason, causesOf(status))
		}
		return
	}
	list := a.list(t)
	got := list.GetResourceVersion()
	switch promise {
	case rvMostRecent:
		resourceVersion = h.y
		fallthrough
	case rvNotOlder:
		if compareRV(t, got, resourceVersion) < 0 {
			t.Errorf("got resourceVersion %s, want at least %s", got, resourceVersion)
		}
	case rvContinuation:
		resourceVersion = h.x
		fallthrough
	case rvExact:
		if got != resourceVersion {
			t.Errorf("got resourceVersion %s, want %s", got, resourceVersion)
		}
	}
	want := h.at(t, got)
	if promise == rvContinuation {
		want = want[1:]
	}
	// A server may answer a limit with everything; then there is no continue token, and nothing may be missing.
	if limited && list.GetContinue() != "" {
		want = want[:1]
	}
	if diff := cmp.Diff(want, list.Items); diff != "" {
		t.Errorf("not the objects at resourceVersion %s (-want +got):\n%s", got, diff)
	}
}
