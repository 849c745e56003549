// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestEngineResourceVersionTooLarge: a read at a resource version that was not reached yet waits for some seconds and then
// tells the client to try again: the number may come from another server, which is ahead.
func TestEngineResourceVersionTooLarge(t *testing.T) {
	t.Parallel()
	const future = "999999999999"
	reads := []struct{ name, query string }{
		{"get", "/o?resourceVersion="},
		{"list, Not older than", "?resourceVersion="},
		{"list, NotOlderThan", "?resourceVersionMatch=NotOlderThan&resourceVersion="},
		{"list with limit, Exact", "?limit=1&resourceVersion="},
		{"list, Exact", "?resourceVersionMatch=Exact&resourceVersion="},
		{"list of one, Not older than", "?fieldSelector=metadata.name%3Do&resourceVersion="},
		{"list with a label, Exact", "?labelSelector=a&resourceVersionMatch=Exact&resourceVersion="},
		{"watch-list", "?watch=1&timeoutSeconds=30&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="},
		{"watch-list with bookmarks", "?watch=1&timeoutSeconds=30&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion="},
	}
	namespace := newNamespace(t, shared)
	var paths []string
	for _, k := range readKinds {
		k.create(t, k.client(t, adminConfig(t, shared), namespace), "o", nil)
		for _, read := range reads {
			paths = append(paths, k.path(namespace)+read.query+future)
		}
	}
	answers := newReader(t, shared).getAll(t, paths...)
	for i, a := range answers {
		t.Run(readKinds[i/len(reads)].resource.Resource+"/"+reads[i%len(reads)].name, func(t *testing.T) {
			retryAfter := a.header.Get("Retry-After")
			if a.code == http.StatusOK {
				// A watch has said 200 before it knows: the Status comes as its only event.
				events := a.events(t)
				if len(events) != 1 || events[0].Type != watch.Error {
					t.Fatalf("got %s, want one event ERROR", a.body)
				}
				a.code, a.body, retryAfter = http.StatusGatewayTimeout, events[0].Object, "1"
			}
			got := a.status(t)
			got.Message = regexp.MustCompile(`current: \d+$`).ReplaceAllString(got.Message, "current: N")
			want := metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
				Message: "Timeout: Too large resource version: " + future + ", current: N",
				Details: &metav1.StatusDetails{
					RetryAfterSeconds: 1,
					Causes:            []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if retryAfter != "1" {
				t.Errorf("got header Retry-After %q, want 1", retryAfter)
			}
		})
	}
}
