// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// testMemory knows a resource with 10,000 objects of 10 kB, and one with 100.
func testMemory() *memory {
	counts := flowcontrolrequest.NewStorageObjectCountTracker()
	counts.Set("many.example.com", storage.Stats{ObjectCount: 10_000, EstimatedAverageObjectSizeBytes: 10_000})
	counts.Set("few.example.com", storage.Stats{ObjectCount: 100, EstimatedAverageObjectSizeBytes: 10_000})
	return newMemory(&genericapiserver.Config{StorageObjectCountTracker: counts, MaxRequestBodyBytes: 3 << 20, Serializer: testCodecs, RequestTimeout: time.Minute})
}

// memoryRequest is a request of a user.
func memoryRequest(ctx context.Context, name string, info genericapirequest.RequestInfo, query, accept, contentType string, body io.Reader) *http.Request {
	info.IsResourceRequest, info.APIGroup = true, "example.com"
	ctx = genericapirequest.WithUser(genericapirequest.WithRequestInfo(ctx, &info), &user.DefaultInfo{Name: name})
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/?"+query, body)
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", contentType)
	return req
}

// TestCostOfLists: a list costs something for each object, and more if it is not streamed.
func TestCostOfLists(t *testing.T) {
	const table, metadata = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "application/vnd.kubernetes.protobuf; as = PartialObjectMetadataList"
	const all, streamed = 10_000 * (10_000*wholeByteCost + wholeObjectCost), 10_000 * listedCost
	for _, tc := range []struct {
		verb, resource, query, accept string
		want                          int64
	}{
		{"list", "many", "", "application/json", streamed},
		{"list", "many", "resourceVersion=0", "application/vnd.kubernetes.protobuf", streamed},
		{"list", "many", "", table, all},
		{"list", "many", "", metadata, all},
		{"list", "many", "limit=500", table, all / 20},
		{"list", "many", "limit=500&resourceVersion=0", table, all},
		{"list", "many", "limit=-1", table, all},
		{"list", "many", "limit=100", table, all / 100},
		{"list", "few", "", "", streamed / 100},
		{"list", "unknown", "", table, 0},
		{"list", "many", "resourceVersion=1&resourceVersionMatch=Exact", "", all},
		{"list", "many", "limit=500&continue=x", "", all / 20},
		{"deletecollection", "many", "", "application/json", all},
		{"get", "many", "", table, 0},
		{"watch", "many", "", table, 0},
	} {
		req := memoryRequest(t.Context(), "ann", genericapirequest.RequestInfo{}, tc.query, tc.accept, "", nil)
		info := &genericapirequest.RequestInfo{Verb: tc.verb, APIGroup: "example.com", Resource: tc.resource}
		if got := testMemory().listCost(req, info); got != tc.want {
			t.Errorf("%s %s?%s as %q: got %d, want %d", tc.verb, tc.resource, tc.query, tc.accept, got, tc.want)
		}
	}
	one := &genericapirequest.RequestInfo{Verb: "list", APIGroup: "example.com", Resource: "many", Name: "a"}
	if got := testMemory().listCost(memoryRequest(t.Context(), "ann", *one, "", table, "", nil), one); got != all/10_000 {
		t.Errorf("list of one: got %d, want %d", got, all/10_000)
	}
}

// TestMemory: costly requests wait for each other, others do not, and the handler reads the whole body.
func TestMemory(t *testing.T) {
	values := strings.Repeat(`"a":1,`, maxValues) // for which a third of the memory is not enough
	for name, tc := range map[string]struct {
		verb, contentType, body string
		chunked                 bool
		inside                  int // of three
	}{
		"many values":              {"create", "application/json", values, false, 2},
		"many values, no type":     {"patch", "", values, false, 2},
		"many values, chunked":     {"update", "application/json", values, true, 2},
		"few values":               {"create", "application/json", strings.Repeat("x", 100<<10), false, 3},
		"few values, chunked":      {"create", "application/json", "{}", true, 3},
		"too long":                 {"create", "application/json", strings.Repeat("x", 4<<20), false, 3},
		"protobuf":                 {"create", "application/vnd.kubernetes.protobuf", protobufValues(maxValues), false, 2},
		"YAML":                     {"patch", "application/apply-patch+yaml", strings.Repeat("x", 1<<20), false, 1},
		"a list":                   {"deletecollection", "", "", false, 1},
		"a read with a body":       {"get", "application/json", values, false, 3},
		"a stream with a body":     {"connect", "application/json", values, false, 3},
		"a stream of a write verb": {"create", "application/octet-stream", values, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, inside, leave := testMemory(), 0, make(chan struct{})
				streams := func(info *genericapirequest.RequestInfo) bool { return info.Subresource == "stream" }
				handler := m.limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					inside++
					body, err := io.ReadAll(req.Body)
					if string(body) != tc.body || err != nil {
						t.Errorf("the handler reads %d bytes and %v, want the whole body of %d", len(body), err, len(tc.body))
					}
					<-leave
				}), streams)
				for i := range 3 {
					info := genericapirequest.RequestInfo{Verb: tc.verb, Resource: "many"}
					if strings.HasPrefix(name, "a stream") {
						info.Subresource = "stream"
					}
					req := memoryRequest(t.Context(), fmt.Sprint("user", i), info, "", "", tc.contentType, strings.NewReader(tc.body))
					if tc.chunked {
						req.ContentLength = -1
					}
					go handler.ServeHTTP(httptest.NewRecorder(), req)
				}
				synctest.Wait()
				if inside != tc.inside {
					t.Errorf("%d handlers run, want %d", inside, tc.inside)
				}
				close(leave)
				synctest.Wait()
				if inside != 3 {
					t.Errorf("%d handlers ran, want all", inside)
				}
			})
		})
	}
}

// TestBodiesOfUser: a user with too many long bodies gets 429, another does not.
func TestBodiesOfUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, leave := testMemory(), make(chan struct{})
		handler := m.limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }), func(*genericapirequest.RequestInfo) bool { return false })
		send := func(name string) *httptest.ResponseRecorder {
			rec, body := httptest.NewRecorder(), strings.NewReader(strings.Repeat(`"a":1,`, maxValues))
			go handler.ServeHTTP(rec, memoryRequest(t.Context(), name, genericapirequest.RequestInfo{Verb: "create", Resource: "many"}, "", "", "", body))
			synctest.Wait()
			return rec
		}
		for range userBodies {
			send("mallory")
		}
		refused, other := send("mallory"), send("ann")
		close(leave)
		synctest.Wait()
		if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" || other.Code != http.StatusOK {
			t.Errorf("got %d %s, and %d for another; want 429 and 200", refused.Code, refused.Body, other.Code)
		}
	})
}

// TestInitialEvents: a watch has memory until its initial events are sent, and only if it sends some.
func TestInitialEvents(t *testing.T) {
	for query, want := range map[string]int64{
		"":                  initialCost,
		"resourceVersion=0": initialCost,
		"resourceVersion=5": 0,
		"sendInitialEvents=true&resourceVersion=5&resourceVersionMatch=NotOlderThan": initialCost,
	} {
		for _, signalled := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				m, fairness := testMemory(), utilflowcontrol.NewInitializationSignal()
				taken := func() int64 { return m.budget.Taken() }
				req := memoryRequest(utilflowcontrol.WithInitializationSignal(t.Context(), fairness), "ann", genericapirequest.RequestInfo{Verb: "watch", Resource: "few"},
					query, "", "", nil)
				m.limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					if got := taken(); got != want {
						t.Errorf("%q: the watch has %d at its beginning, want %d", query, got, want)
					}
					if signalled {
						utilflowcontrol.WatchInitialized(req.Context())
						fairness.Wait()
					} else {
						<-time.After(maxInitial + time.Second)
					}
					if got := taken(); got != 0 {
						t.Errorf("%q: the watch has %d after its initial events, want 0", query, got)
					}
				}), func(*genericapirequest.RequestInfo) bool { return false }).ServeHTTP(httptest.NewRecorder(), req)
			})
		}
	}
}

// TestWritesEnd: the handler of a write does not see for a while that its client is gone, so it keeps its seat until its work ends.
func TestWritesEnd(t *testing.T) {
	for verb, want := range map[string]time.Duration{
		"create": maxGrace, "patch": maxGrace, "update": maxGrace, "delete": maxGrace, "deletecollection": maxGrace, "list": time.Second, "get": time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			testMemory().limit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				<-req.Context().Done()
				if after := time.Since(began); after != want || !errors.Is(context.Cause(req.Context()), context.DeadlineExceeded) {
					t.Errorf("%s: the context ends after %s with %v, want %s", verb, after, context.Cause(req.Context()), want)
				}
			}), func(*genericapirequest.RequestInfo) bool { return false }).ServeHTTP(httptest.NewRecorder(),
				memoryRequest(ctx, "ann", genericapirequest.RequestInfo{Verb: verb, Resource: "few"}, "", "", "", nil))
		})
	}
}
