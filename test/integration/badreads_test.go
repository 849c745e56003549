// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// badReads are queries by the status code that refuses them.
var badReads = map[int][]string{
	http.StatusBadRequest: {
		"?labelSelector=a+b",
		"?labelSelector=a+in+(",
		"?labelSelector=-a",
		"?labelSelector=a%3Dnot.a.value.",
		"?watch=1&labelSelector=a+b",
		"?fieldSelector=metadata.name",
		"?fieldSelector=metadata.name%3Ea",
		"?watch=1&fieldSelector=metadata.name",
		"?limit=abc",
		"?limit=1.5",
		"?limit=",
		"?limit=9223372036854775808",
		"?timeoutSeconds=abc",
		"?timeout=abc",
		"?watch=1&timeoutSeconds=abc",
		"?resourceVersion=abc",
		"?resourceVersion=-1",
		"?resourceVersion=18446744073709551616",
		"?limit=1&resourceVersion=abc",
		"?resourceVersionMatch=Exact&resourceVersion=abc",
		"?resourceVersionMatch=NotOlderThan&resourceVersion=abc",
		"?fieldSelector=metadata.name%3Do&resourceVersion=abc",
		"?continue=abc",
		"?continue=%21",
		"?limit=1&continue=abc",
	},
	http.StatusUnprocessableEntity: {
		"?resourceVersionMatch=exact&resourceVersion=1",
		"?sendInitialEvents=true",
		"?sendInitialEvents=false",
		"?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
		"?watch=1&sendInitialEvents=true",
		"?watch=1&sendInitialEvents=false",
		"?watch=1&sendInitialEvents=true&resourceVersion=0",
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
		"?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1",
		"?watch=1&resourceVersionMatch=Exact&resourceVersion=1",
		"?watch=1&continue=abc",
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=abc",
	},
	http.StatusNotFound: {"/none?resourceVersion=0"},
}

// TestEngineBadReads: the server refuses a read that makes no sense, and in the words of kube-apiserver: a client cannot
// tell an engine from a built-in resource.
func TestEngineBadReads(t *testing.T) {
	namespace := newNamespace(t, shared)
	r := newReader(t, shared)
	for _, k := range readKinds {
		k.create(t, k.client(t, adminConfig(t, shared), namespace), "o", nil)
	}
	check := func(t *testing.T, query string, code int) {
		t.Helper()
		if strings.Contains(query, "watch=1") && !strings.Contains(query, "timeoutSeconds") {
			// A watch that is not refused shall end.
			query += "&timeoutSeconds=5"
		}
		engines, builtIn := r.get(t, readKinds[0].path(namespace)+query), r.get(t, readKinds[1].path(namespace)+query)
		if engines.code != code {
			t.Errorf("got %d %s, want %d", engines.code, engines.body, code)
		}
		if diff := cmp.Diff(plainStatus(t, builtIn), plainStatus(t, engines)); diff != "" {
			t.Errorf("status (-kube-apiserver for leases +our server for engines):\n%s", diff)
		}
	}
	for code, queries := range badReads {
		for _, query := range queries {
			t.Run(query, func(t *testing.T) { check(t, query, code) })
		}
	}
	const version = "meta.k8s.io/v1"
	for _, token := range []continueToken{
		{version, 0, "o\x00"}, {version, 1, ""}, {"", 1, "o\x00"}, {"meta.k8s.io/v2", 1, "o\x00"}, {version, -1, "."}, {version, -1, "//o"},
		{version, -1, "../o\x00"}, {version, -1, "../../items/"}, {version, -1, "a/../../o\x00"}, {version, -1, "/../o"}, {version, -1, "a/./b"},
	} {
		t.Run(fmt.Sprintf("continue %q %d %q", token.Version, token.ResourceVersion, token.Start), func(t *testing.T) {
			check(t, "?continue="+token.String(), http.StatusBadRequest)
			check(t, "?limit=1&continue="+token.String(), http.StatusBadRequest)
		})
	}
}

// TestEngineBadReadsNameTheField: what is wrong with a combination of options is told by field, as for a wrong object.
func TestEngineBadReadsNameTheField(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		r := newReader(t, shared)
		for query, want := range map[string]string{
			"?resourceVersionMatch=Exact":                                  "resourceVersionMatch: FieldValueForbidden",
			"?resourceVersionMatch=Exact&resourceVersion=0":                "resourceVersionMatch: FieldValueForbidden",
			"?resourceVersionMatch=Newest&resourceVersion=1":               "resourceVersionMatch: FieldValueNotSupported",
			"?resourceVersionMatch=Exact&resourceVersion=1&continue=abc":   "resourceVersionMatch: FieldValueForbidden",
			"?sendInitialEvents=true":                                      "sendInitialEvents: FieldValueForbidden",
			"?watch=1&sendInitialEvents=true":                              "resourceVersionMatch: FieldValueForbidden",
			"?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact":   "resourceVersionMatch: FieldValueForbidden, resourceVersionMatch: FieldValueNotSupported",
			"?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1": "resourceVersionMatch: FieldValueForbidden",
		} {
			status := r.get(t, k.path(namespace)+query).status(t)
			if got := causesOf(status); got != want || status.Code != http.StatusUnprocessableEntity || status.Reason != metav1.StatusReasonInvalid {
				t.Errorf("%s: got %d %s with causes %q, want 422 Invalid with %q", query, status.Code, status.Reason, got, want)
			}
		}
	})
}

// plainStatus is a Status without the names of resource and group.
func plainStatus(t *testing.T, a rawAnswer) metav1.Status {
	t.Helper()
	for _, k := range readKinds {
		a.body = []byte(strings.NewReplacer(k.resource.GroupResource().String(), "RESOURCE", k.resource.Group, "GROUP", `"`+k.resource.Resource+`"`, `"RESOURCE"`).
			Replace(string(a.body)))
	}
	return a.status(t)
}

// TestEngineUnknownField: a field selector that the kind does not have is refused by name, and not taken for one that
// selects everything.
func TestEngineUnknownField(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		r := newReader(t, shared)
		for _, query := range []string{"?fieldSelector=spec.none%3Da", "?watch=1&fieldSelector=spec.none%3Da", "?fieldSelector=metadata.name%3Da,spec.none!%3Da"} {
			status := r.get(t, k.path(namespace)+query).status(t)
			if status.Code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest || !strings.Contains(status.Message, `"spec.none"`) {
				t.Errorf("%s: got %d %s %q, want 400 BadRequest that names \"spec.none\"", query, status.Code, status.Reason, status.Message)
			}
		}
	})
}

// TestEngineToleratedReads: some values that look wrong mean nothing, for every resource.
func TestEngineToleratedReads(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		k.create(t, client, "a", nil)
		k.create(t, client, "b", nil)
		r := newReader(t, shared)
		for _, query := range []string{
			"?limit=0", "?continue=", "?timeoutSeconds=-1", "?timeout=-1s",
			"?allowWatchBookmarks=true", "?watch=0", "?watch=false", "?unknown=1",
		} {
			list := r.get(t, k.path(namespace)+query).list(t)
			if diff := cmp.Diff([]string{"a", "b"}, objectNames(list.Items)); diff != "" || list.GetContinue() != "" {
				t.Errorf("%s: got continue %q, want none; names (-want +got):\n%s", query, list.GetContinue(), diff)
			}
		}
		// A watch whose time is over before it begins is told nothing.
		now := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
		if events := r.get(t, k.path(namespace)+"?watch=1&timeoutSeconds=-1&resourceVersion="+now).events(t); len(events) != 0 {
			t.Errorf("watch with timeoutSeconds=-1: got %s, want no events", events)
		}
	})
}
