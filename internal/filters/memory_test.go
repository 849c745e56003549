// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"example.com/extension-apiserver/internal/objectsizes"
	"example.com/extension-apiserver/pkg/registry"
)

// largestObject is the size of the object large of testMemory. otherObject is the known upper
// bound for all other objects of the resource, 64 KiB.
const largestObject, otherObject = 1_500_000, 64 << 10

// testMemory returns a Memory that knows a resource with 10,000 objects of 10 kB on average, one
// with 100 objects of 10 kB, and one that is not counted yet.
func testMemory(t *testing.T) *Memory {
	t.Helper()
	counts, sizes := flowcontrolrequest.NewStorageObjectCountTracker(), objectsizes.New()
	counts.Set("many.example.com", storage.Stats{ObjectCount: 10_000, EstimatedAverageObjectSizeBytes: 10_000})
	counts.Set("few.example.com", storage.Stats{ObjectCount: 100, EstimatedAverageObjectSizeBytes: 10_000})
	counts.Set("elsewhere.example.com", storage.Stats{ObjectCount: 100})
	for resource, size := range map[string]int{"many": largestObject, "few": 10_000, "new": 0} {
		of := schema.GroupResource{Group: "example.com", Resource: resource}
		options, err := sizes.Observe(registry.Unconnected{}, nil).GetRESTOptions(of, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := options.StorageConfig.Transformer.TransformToStorage(t.Context(), bytes.Repeat([]byte("x"), size),
			value.DefaultContext("/"+resource+"/ns/large")); err != nil {
			t.Fatal(err)
		}
	}
	return NewMemory(&genericapiserver.Config{StorageObjectCountTracker: counts, MaxRequestBodyBytes: 3 << 20,
		Serializer: testCodecs, RequestTimeout: time.Minute}, sizes, newTurns(100, counts, sizes))
}

// memoryRequest returns a request of a user.
func memoryRequest(ctx context.Context, name string, info genericapirequest.RequestInfo, query, accept,
	contentType string, body io.Reader) *http.Request {
	info.IsResourceRequest, info.APIGroup = true, "example.com"
	ctx = genericapirequest.WithUser(genericapirequest.WithRequestInfo(ctx, &info), &user.DefaultInfo{Name: name})
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/?"+query, body)
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", contentType)
	return req
}

// TestCostOfObjects checks that a list that is not read from the watch cache has a cost for all
// objects, and that the cost of other requests depends on the size of their object.
func TestCostOfObjects(t *testing.T) {
	const table, metadata = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
		"application/vnd.kubernetes.protobuf; as = PartialObjectMetadataList"
	const size = 100_000_000 * wholeByteCost
	const all = size + 10_000*wholeObjectCost
	for _, tc := range []struct {
		verb, resource, query, accept, agent string
		want                                 int64
	}{
		{"list", "many", "resourceVersion=5", "application/json", "", 0},
		{"list", "many", "resourceVersion=0", "application/vnd.kubernetes.protobuf", "", 0},
		{"list", "many", "", table, "", all},
		{"list", "many", "resourceVersion=0", metadata, "", 0},
		{"list", "many", "limit=500", table, "", size + 500*wholeObjectCost}, // these may be the largest
		{"list", "many", "limit=10", table, "", 10 * (largestObject*wholeByteCost + wholeObjectCost)},
		{"list", "many", "limit=500&resourceVersion=0", table, "", 0},
		{"list", "many", "limit=-1", table, "", all},
		{"list", "few", "resourceVersion=0", "", "", 0},
		{"list", "new", "", table, "", memoryTotal / memoryUsers},
		{"list", "elsewhere", "", table, "", 0},
		{"list", "many", "resourceVersion=1&resourceVersionMatch=Exact", "", "", all},
		{"list", "many", "limit=10000&resourceVersion=1", "", "", all},
		{"list", "many", "limit=1&resourceVersion=1&labelSelector=a", "", "", all},
		{"list", "many", "limit=1&continue=x", "", "", largestObject*wholeByteCost + wholeObjectCost},
		{"list", "many", "pretty=1", "", "", all},
		{"list", "many", "pretty=0&resourceVersion=0", "", "curl/8", 0},
		{"list", "many", "", "", "curl/8", all},
		{"list", "many", "pretty=0", "application/json;pretty=1", "", all},
		{"deletecollection", "many", "", "application/json", "", all},
		{"get", "many/large", "", table, "", objectByteCost * largestObject},
		{"get", "many/large", "", "", "Mozilla/5.0", objectByteCost * largestObject},
		{"get", "many/other", "", "", "", objectByteCost * otherObject},
		{"get", "few/large", "", "", "", objectByteCost * 10_000},
		{"get", "elsewhere/large", "", "", "", 0},
		{"patch", "many/large", "", "", "", changedByteCost * largestObject},
		{"update", "many/large", "", "", "", changedByteCost * largestObject},
		{"delete", "many/large", "", "", "", changedByteCost * largestObject},
		{"list", "many/other", "", table, "", otherObject*wholeByteCost + wholeObjectCost},
		{"create", "many", "", "", "", 0},
	} {
		req := memoryRequest(t.Context(), "ann", genericapirequest.RequestInfo{}, tc.query, tc.accept, "", nil)
		req.Header.Set("User-Agent", tc.agent)
		resource, name, _ := strings.Cut(tc.resource, "/")
		info := &genericapirequest.RequestInfo{Verb: tc.verb, APIGroup: "example.com", Resource: resource,
			Namespace: "ns", Name: name}
		if got, err := testMemory(t).objectsCost(req, info); got != tc.want || err != nil {
			t.Errorf("%s %s?%s as %q of %q: got %d and error %v, want %d", tc.verb, tc.resource, tc.query, tc.accept,
				tc.agent, got, err, tc.want)
		}
	}
}

// TestConvertedList checks that a list of objects in another version than that of their Go type costs
// more.
func TestConvertedList(t *testing.T) {
	m := testMemory(t)
	scheme, of := runtime.NewScheme(), schema.GroupResource{Group: "example.com", Resource: "converted"}
	for _, version := range []string{"v1", runtime.APIVersionInternal} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: of.Group, Version: version, Kind: "Converted"},
			&metav1.PartialObjectMetadata{})
	}
	m.counts.Set(of.String(), storage.Stats{ObjectCount: 10, EstimatedAverageObjectSizeBytes: 10_000})
	options, err := m.sizes.Observe(registry.Unconnected{}, scheme).GetRESTOptions(of, &metav1.PartialObjectMetadata{})
	if err == nil {
		_, err = options.StorageConfig.Transformer.TransformToStorage(t.Context(), bytes.Repeat([]byte("x"), 10_000),
			value.DefaultContext("/converted/ns/large"))
	}
	if err != nil {
		t.Fatal(err)
	}
	list := &metav1.PartialObjectMetadataList{}
	for i := range 10 {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
			Name: fmt.Sprint("w", i), Annotations: map[string]string{"a": strings.Repeat("x", 8000)}}})
	}
	size := int64(list.Items[0].Size()*5/4 + 1<<10)
	for version, want := range map[string]int64{"v1": 10*listedCost + objectByteCost*10_000,
		"v1beta1": 10 * (size*convertedByteCost + wholeObjectCost)} {
		info := genericapirequest.RequestInfo{Verb: "list", APIGroup: of.Group, APIVersion: version, Resource: of.Resource,
			Namespace: "ns"}
		l := listShare{memory: m, req: memoryRequest(t.Context(), "ann", info, "", "", "", nil), info: &info,
			converted: m.sizes.Converted(of, version)}
		if got, err := l.cost(list); got != want || err != nil {
			t.Errorf("list in %s: got %d, %v, want %d", version, got, err, want)
		}
	}
}

// TestTooLargeList checks that a list of whole objects that needs more memory than a user has gets
// 413, and that other lists do not.
func TestTooLargeList(t *testing.T) {
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	m := testMemory(t)
	options, err := m.sizes.Observe(registry.Unconnected{}, nil).GetRESTOptions(
		schema.GroupResource{Group: "example.com", Resource: "many"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		key := value.DefaultContext(fmt.Sprintf("/many/escapes/w%d", i))
		if _, err := options.StorageConfig.Transformer.TransformToStorage(t.Context(),
			bytes.Repeat([]byte("<"), largestObject), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		namespace, query, accept string
		tooLarge                 bool
	}{
		{"escapes", "includeObject=Object", table, true},
		{"", "includeObject=Object", table, true},
		{"escapes", "includeObject=Object&limit=500", table, true},
		{"escapes", "continue=x", "", false},
		{"escapes", "includeObject=Object&limit=3", table, false},
		{"escapes", "", table, true},
		{"escapes", "includeObject=None", table, false},
		{"escapes", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false},
		{"escapes", "resourceVersion=0", "", false},
		{"ns", "includeObject=Object", table, false},
	} {
		info := genericapirequest.RequestInfo{Verb: "list", APIGroup: "example.com", Resource: "many",
			Namespace: tc.namespace}
		_, err := m.objectsCost(memoryRequest(t.Context(), "ann", info, tc.query, tc.accept, "", nil), &info)
		if apierrors.IsRequestEntityTooLargeError(err) != tc.tooLarge || (err != nil) != tc.tooLarge {
			t.Errorf("list of %q?%s as %q: got %v, want it too large: %t", tc.namespace, tc.query, tc.accept,
				err, tc.tooLarge)
		}
	}
}

// TestLiveLists checks that a list of objects that are not stored has the cost that earlier lists
// had, and that a list which is larger leaves less memory to others.
func TestLiveLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, inside := testMemory(t), 0
		growing, unknown := objectsizes.NewLists(memoryTotal), objectsizes.NewLists(memoryTotal/memoryUsers/liveByteCost)
		growing.Record(t.Context(), objectsizes.List{Objects: 1, Size: 10, Whole: true})
		leave := map[string]chan struct{}{"growing": make(chan struct{}), "unknown": make(chan struct{})}
		handler := m.WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			info, _ := genericapirequest.RequestInfoFrom(req.Context())
			if inside++; info.Resource == "growing" {
				growing.Record(req.Context(), objectsizes.List{Objects: 1, Size: memoryTotal, Whole: true})
			}
			<-leave[info.Resource]
		}), func(*genericapirequest.RequestInfo) bool { return false })
		for resource, lists := range map[string]*objectsizes.Lists{"growing": growing, "unknown": unknown} {
			m.sizes.AddLists(schema.GroupResource{Group: "example.com", Resource: resource}, lists)
		}
		list := func(name, resource string, want int) {
			t.Helper()
			go handler.ServeHTTP(httptest.NewRecorder(), memoryRequest(t.Context(), name,
				genericapirequest.RequestInfo{Verb: "list", Resource: resource}, "", "", "", nil))
			if synctest.Wait(); inside != want {
				t.Errorf("after a list of %s by %s: %d handlers ran, want %d", resource, name, inside, want)
			}
		}
		list("ann", "unknown", 1)
		list("bob", "growing", 2)
		list("carl", "unknown", 2)
		close(leave["growing"])
		if synctest.Wait(); inside != 3 {
			t.Errorf("after the end of the large list: %d handlers ran, want 3", inside)
		}
		list("bob", "growing", 3) // it now has the cost of the large list
		close(leave["unknown"])
		if synctest.Wait(); inside != 4 {
			t.Errorf("at the end, %d handlers ran, want 4", inside)
		}
	})
}

// TestCompact checks that JSON is indented only if that costs little.
func TestCompact(t *testing.T) {
	for _, tc := range []struct {
		verb, name, query, accept string
		body                      int
		want                      bool
	}{
		{"get", "other", "pretty=1", "", 0, true},
		{"get", "large", "pretty=1", "", 0, false},
		{"get", "large", "", "application/json; pretty=1, */*", 0, false},
		{"list", "", "pretty=true", "", 0, false},
		{"create", "", "pretty=1", "", 10, true},
		{"create", "", "pretty=1", "", longBody + 1, false},
	} {
		info := genericapirequest.RequestInfo{Verb: tc.verb, Resource: "many", Namespace: "ns", Name: tc.name}
		req := memoryRequest(t.Context(), "ann", info, tc.query, tc.accept, "",
			strings.NewReader(strings.Repeat("x", tc.body)))
		testMemory(t).WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if got := pretty(req); got != tc.want {
				t.Errorf("%s %s?%s as %q with %d bytes: got indented %t, want %t", tc.verb, tc.name, tc.query,
					tc.accept, tc.body, got, tc.want)
			}
		}), func(*genericapirequest.RequestInfo) bool { return false }).ServeHTTP(httptest.NewRecorder(), req)
	}
}

// TestTurnsOfObjects checks that requests with a large object or body run one after the other.
func TestTurnsOfObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, object, body string
		chunked, waits     bool
	}{
		"get a large object":           {"get", "large", "", false, true},
		"delete a large object":        {"delete", "large", "", false, true},
		"get a small object":           {"get", "other", "", false, false},
		"create with a large body":     {"create", "", strings.Repeat("x", longBody+1), false, true},
		"create with a body":           {"create", "", strings.Repeat("x", longBody), false, false},
		"create with a body in chunks": {"create", "", "x", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, inside, leave := testMemory(t), 0, make(chan struct{})
				m.turns = newTurns(1, m.counts, m.sizes)
				handler := m.WithLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					inside++
					<-leave
				}), func(*genericapirequest.RequestInfo) bool { return false })
				for _, user := range []string{"ann", "bob"} {
					req := memoryRequest(t.Context(), user, genericapirequest.RequestInfo{Verb: tc.verb, Resource: "many",
						Namespace: "ns", Name: tc.object}, "", "", "", strings.NewReader(tc.body))
					if tc.chunked {
						req.ContentLength = -1
					}
					go handler.ServeHTTP(httptest.NewRecorder(), req)
				}
				want := 2
				if tc.waits {
					want = 1
				}
				if synctest.Wait(); inside != want {
					t.Errorf("%d handlers run, want %d", inside, want)
				}
				leave <- struct{}{}
				if synctest.Wait(); inside != 2 {
					t.Errorf("after the first response, %d handlers ran, want 2", inside)
				}
				close(leave)
			})
		})
	}
}

// TestMemory checks that costly requests wait for each other, that other requests do not wait, and
// that the handler reads the whole body.
func TestMemory(t *testing.T) {
	values := strings.Repeat(`"a":1,`, maxValues) // a third of the memory is not enough for these
	for name, tc := range map[string]struct {
		verb, contentType, body string
		chunked                 bool
		inside                  int // of four requests
	}{
		"many values":          {"create", "application/json", values, false, 3},
		"many values, no type": {"patch", "", values, false, 3},
		"many values, chunked": {"update", "application/json", values, true, 3},
		"few values":           {"create", "application/json", strings.Repeat("x", 100<<10), false, 4},
		"few values, chunked":  {"create", "application/json", "{}", true, 4},
		"too long":             {"create", "application/json", strings.Repeat("x", 4<<20), false, 4},
		"protobuf": {"create", "application/vnd.kubernetes.protobuf",
			protobufValues(maxValues), false, 3},
		"YAML": {"patch", "application/apply-patch+yaml",
			strings.Repeat("a:\n", maxValues), false, 3},
		"a list":                   {"deletecollection", "", "", false, 1},
		"a read with a body":       {"list", "application/json", values, false, 4},
		"a stream with a body":     {"connect", "application/json", values, false, 4},
		"a stream of a write verb": {"create", "application/octet-stream", values, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, inside, leave := testMemory(t), 0, make(chan struct{})
				streams := func(info *genericapirequest.RequestInfo) bool { return info.Subresource == "stream" }
				handler := m.WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					inside++
					body, err := io.ReadAll(req.Body)
					if string(body) != tc.body || err != nil {
						t.Errorf("the handler reads %d bytes and %v, want the whole body of %d", len(body),
							err, len(tc.body))
					}
					<-leave
				}), streams)
				for i := range 4 {
					info := genericapirequest.RequestInfo{Verb: tc.verb, Resource: "many"}
					if strings.HasPrefix(name, "a read") {
						info.Resource = "few"
					}
					if strings.HasPrefix(name, "a stream") {
						info.Subresource = "stream"
					}
					req := memoryRequest(t.Context(), fmt.Sprint("user", i), info, "", "", tc.contentType,
						strings.NewReader(tc.body))
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
				if inside != 4 {
					t.Errorf("%d handlers ran, want all", inside)
				}
			})
		})
	}
}

// TestBodiesOfUser checks that a user with too many long bodies waits and then gets 429, and that
// another user does not.
func TestBodiesOfUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, leave := testMemory(t), make(chan struct{})
		handler := m.WithLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }),
			func(*genericapirequest.RequestInfo) bool { return false })
		read := 0
		send := func(name string) *httptest.ResponseRecorder {
			rec, body := httptest.NewRecorder(), strings.NewReader(strings.Repeat("x", 200<<10))
			go handler.ServeHTTP(rec, memoryRequest(t.Context(), name,
				genericapirequest.RequestInfo{Verb: "create", Resource: "many"}, "", "", "", body))
			synctest.Wait()
			if body.Len() == 0 {
				read++
			}
			return rec
		}
		for range userBodies + waitingBodies {
			send("mallory")
		}
		if read != userBodies {
			t.Errorf("%d bodies are in memory, want %d", read, userBodies)
		}
		refused, other := send("mallory"), send("ann")
		if read != userBodies+1 {
			t.Errorf("%d bodies are in memory with that of another user, want %d", read, userBodies+1)
		}
		close(leave)
		synctest.Wait()
		if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" ||
			other.Code != http.StatusOK {
			t.Errorf("got %d %s, and %d for another; want 429 and 200", refused.Code, refused.Body, other.Code)
		}
	})
}

// TestInitialEvents checks that a watch holds memory until it has written its initial events,
// however long that takes, and at most until a timeout. A watch that sends many objects has a turn.
func TestInitialEvents(t *testing.T) {
	for query, turns := range map[string]int64{
		"":                   1,
		"resourceVersion=0":  1,
		"resourceVersion=00": 1,
		"resourceVersion=5":  1, // until the signal of the storage
		"sendInitialEvents=true&resourceVersion=5&resourceVersionMatch=NotOlderThan": 1,
		"sendInitialEvents=1&resourceVersion=5&resourceVersionMatch=NotOlderThan":    1,
	} {
		for name, events := range map[string]int{"no events": 0, "events": 3, "no signal": -1} {
			t.Run(query+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testInitialEvents(t, query, turns, events) })
			})
		}
	}
}

// testInitialEvents serves a watch with initial events, or one whose storage never signals that it has
// sent them if their number is negative.
func testInitialEvents(t *testing.T, query string, turns int64, events int) {
	const cost = initialByteCost * largestObject
	m, signal := testMemory(t), utilflowcontrol.NewInitializationSignal()
	has := func(when string, want int64) {
		t.Helper()
		synctest.Wait()
		if got := m.budget.InUse(); got != want {
			t.Errorf("the watch has %d bytes %s, want %d", got, when, want)
		}
	}
	library := watch.NewFakeWithChanSize(eventsAhead, false)
	for i := range events {
		library.Modify(podVersion(fmt.Sprint(i)))
	}
	handler := m.WithLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		has("at its beginning", cost)
		if got := m.turns.budget.InUse(); got != turns {
			t.Errorf("the watch has %d turns, want %d", got, turns)
		}
		live, err := new(sharedEvents).watch(req.Context(), func(ctx context.Context) (watch.Interface, error) {
			if early := query == ""; events >= 0 && early {
				utilflowcontrol.WatchInitialized(ctx)
			} else if events >= 0 { // when the watch has read the events
				time.AfterFunc(time.Millisecond, func() { utilflowcontrol.WatchInitialized(ctx) })
			}
			return library, nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer live.Stop()
		if events >= 0 {
			signal.Wait() // which a watch with a replay passes on before the storage signals
			<-time.After(time.Second)
		}
		for range events {
			<-live.ResultChan()
			<-time.After(time.Second)
			has("before an event is written", cost)
			_, _ = w.Write([]byte("an event"))
		}
		if events < 0 {
			<-time.After(maxInitial - time.Second)
			has("before the timeout", cost)
			if query == "" { // a large event follows the initial ones, over WebSocket
				began := time.Now()
				if err := shareOf(req.Context()).take(m.perUser); err != nil || time.Since(began) > 0 {
					t.Errorf("a large event waits for %s with %v, want its memory at once", time.Since(began), err)
				}
				has("for a large event", m.perUser)
				shareOf(req.Context()).release()
			}
			<-time.After(2 * time.Second)
		}
		has("after its initial events", 0)
		<-time.After(turnChecks)
		synctest.Wait()
		if got := m.turns.budget.InUse(); got != 0 {
			t.Errorf("the watch has %d turns after its initial events", got)
		}
	}), func(*genericapirequest.RequestInfo) bool { return false })
	req := memoryRequest(utilflowcontrol.WithInitializationSignal(t.Context(), signal), "ann",
		genericapirequest.RequestInfo{Verb: "watch", Resource: "many"}, query, "", "", nil)
	req = req.WithContext(context.WithValue(req.Context(), grantKey{}, &grant{}))
	newLongRunning(&caller{}).WithWatchLimit(handler, m, testCodecs).ServeHTTP(httptest.NewRecorder(), req)
}

// TestWritesOfDisconnectedClients checks that for a while the handler of a write does not see that
// its client has disconnected, so that the write keeps its seat until its work ends.
func TestWritesOfDisconnectedClients(t *testing.T) {
	for verb, want := range map[string]time.Duration{
		"create": maxGrace, "patch": maxGrace, "update": maxGrace, "delete": maxGrace, "deletecollection": maxGrace,
		"list": time.Second, "get": time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			testMemory(t).WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				<-req.Context().Done()
				if after := time.Since(began); after != want ||
					!errors.Is(context.Cause(req.Context()), context.DeadlineExceeded) {
					t.Errorf("%s: the context ends after %s with %v, want %s", verb, after,
						context.Cause(req.Context()), want)
				}
			}), func(*genericapirequest.RequestInfo) bool { return false }).ServeHTTP(httptest.NewRecorder(),
				memoryRequest(ctx, "ann", genericapirequest.RequestInfo{Verb: verb, Resource: "few"}, "", "", "", nil))
		})
	}
}

// TestLargeWrites checks that a user who stored many large objects gets 429 for the next large
// object, and not for other writes.
func TestLargeWrites(t *testing.T) {
	m := testMemory(t)
	of := schema.GroupResource{Group: "example.com", Resource: "many"}
	options, err := m.sizes.Observe(registry.Unconnected{}, nil).GetRESTOptions(of, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "a"})
	for range m.total/6/largestObject + 1 {
		if _, err := options.StorageConfig.Transformer.TransformToStorage(ctx, bytes.Repeat([]byte("x"), largestObject),
			value.DefaultContext("/many/ns/large")); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		user, verb, resource, object, query string
		body, code                          int
	}{
		"update":           {"a", "update", "many", "large", "", 10, http.StatusTooManyRequests},
		"patch":            {"a", "patch", "many", "large", "", 10, http.StatusTooManyRequests},
		"create":           {"a", "create", "many", "", "", longBody + 1, http.StatusTooManyRequests},
		"of a dry run":     {"a", "update", "many", "large", "dryRun=All", 10, http.StatusOK},
		"of a small one":   {"a", "patch", "many", "small", "", 10, http.StatusOK},
		"small create":     {"a", "create", "many", "", "", 10, http.StatusOK},
		"deletion":         {"a", "delete", "many", "large", "", 0, http.StatusOK},
		"read":             {"a", "get", "many", "large", "", 0, http.StatusOK},
		"another user":     {"b", "update", "many", "large", "", 10, http.StatusOK},
		"another resource": {"a", "create", "few", "", "", longBody + 1, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			handler := m.WithLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
				func(*genericapirequest.RequestInfo) bool { return false })
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, memoryRequest(t.Context(), tc.user, genericapirequest.RequestInfo{Verb: tc.verb,
				Resource: tc.resource, Namespace: "ns",
				Name: tc.object}, tc.query, "application/json", "application/json",
				strings.NewReader(`"`+strings.Repeat("x", tc.body)+`"`)))
			if rec.Code != tc.code || (tc.code == http.StatusTooManyRequests) != (rec.Header().Get(
				"Retry-After") != "") {
				t.Errorf("got %d, Retry-After %q and %.100s, want %d", rec.Code, rec.Header().Get("Retry-After"),
					rec.Body, tc.code)
			}
		})
	}
}
