// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestWidgetEtcd checks that responses from the watch cache are equivalent to responses from
// etcd.
func TestWidgetEtcd(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{ExternalEtcd: true})
	t.Run("one watch", func(t *testing.T) { testOneWatch(t, e) })
	t.Run("most recent", func(t *testing.T) { testMostRecent(t, e) })
	t.Run("expired", func(t *testing.T) { testExpired(t, e) })
}

// testOneWatch checks that a resource is watched in etcd only once, for any number of served
// versions and client watches.
func testOneWatch(t *testing.T, e *envtest.Environment) {
	for _, gv := range install.GroupVersions() {
		for range 3 {
			w, err := inVersion(gv.Version).client(t, e.Admin(t), "").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
		}
	}
	metrics, err := e.EtcdMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// kindCases has all stored kinds. One more watch follows the revision of the last compaction.
	if got := sumOf(t, metrics, "etcd_debugging_mvcc_watcher_total", nil); got != float64(len(kindCases)+1) {
		t.Errorf("watches in etcd: %v, want %d, one for each resource and one for compactions", got, len(kindCases)+1)
	}
}

// testMostRecent checks that reads that guarantee the most recent state return the last revision
// of etcd. The cache must request this revision, because none of its own objects changed.
func testMostRecent(t *testing.T, e *envtest.Environment) {
	namespace := e.NewNamespace(t)
	k, etcd := readKinds[0], etcdClient(t, e)
	client := k.client(t, e.Admin(t), namespace)
	k.create(t, client, "a", nil)
	for name, read := range map[string]func() string{
		"list":      func() string { return mustList(t, client, metav1.ListOptions{}).GetResourceVersion() },
		"list page": func() string { return mustList(t, client, metav1.ListOptions{Limit: 1}).GetResourceVersion() },
		"list label": func() string {
			return mustList(t, client,
				metav1.ListOptions{LabelSelector: "a"}).GetResourceVersion()
		},
		"watch-list": func() string {
			events := mustWatch(t, client, metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true,
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
			for {
				if event := nextEvent(t, events); event.Type == watch.Bookmark {
					return event.Object.(*unstructured.Unstructured).GetResourceVersion()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			written, err := etcd.Put(t.Context(), "test", name)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := read(), strconv.FormatInt(written.Header.Revision, 10); compareRV(t, got, want) < 0 {
				t.Errorf("got resourceVersion %s, want at least etcd's revision before the read, %s", got, want)
			}
		})
	}
}

// testExpired checks that the server responds to requests for a compacted state with 410 Expired,
// after which a client lists again, and never with a wrong list. A client in the middle of a
// paginated list gets a token to continue it in the present state.
func testExpired(t *testing.T, e *envtest.Environment) {
	namespace := e.NewNamespace(t)
	k, r := readKinds[0], aggregator(t, e)
	client := k.client(t, e.Admin(t), namespace)
	for _, name := range []string{"a", "b", "c", "d"} {
		k.create(t, client, name, nil)
	}
	page := mustList(t, client, metav1.ListOptions{Limit: 2})
	mustDelete(t, client, "c")
	patchLabel(t, client, "d", "changed", "yes")
	k.create(t, client, "e", nil)
	now := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()

	atThePage := k.path(namespace) + "?resourceVersionMatch=Exact&resourceVersion=" + page.GetResourceVersion()
	if got := r.Do(t, http.MethodGet, atThePage, nil, nil).List(t); !cmp.Equal(objectNames(got.Items),
		[]string{"a", "b", "c", "d"}) {
		t.Fatalf("before the compaction: got %v at the page's resource version, want a to d", objectNames(got.Items))
	}
	compactEtcd(t, e, now)
	// The server serves old states from its watch cache until it detects the compaction. Every 15
	// s it reads the key that all servers that compact the same etcd write.
	e.Eventually(t, "410 for the compacted resource version", envtest.WaitTimeout, func(context.Context) error {
		if a := r.Do(t, http.MethodGet, atThePage, nil, nil); a.Status != http.StatusGone {
			return fmt.Errorf("got %d %s", a.Status, a.Body)
		}
		return nil
	})
	checkExpired(t, r, k.path(namespace), page)

	// The watch cache of a server that has just started begins at its start.
	if err := e.RestartServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "the API after the restart", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{})
		return err
	})
	checkExpired(t, r, k.path(namespace), page)
	checkWatchExpired(t, r, k.path(namespace), page)
	// "Not older than" an old resource version returns the present state.
	got := r.Do(t, http.MethodGet, k.path(namespace)+"?resourceVersion="+page.GetResourceVersion(), nil, nil).List(t)
	if diff := cmp.Diff([]string{"a", "b", "d", "e"}, objectNames(got.Items)); diff != "" {
		t.Errorf("list not older than the past (-want +got):\n%s", diff)
	}
}

func etcdClient(t *testing.T, e *envtest.Environment) *clientv3.Client {
	t.Helper()
	client, err := e.EtcdClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// compactEtcd makes etcd discard all revisions before a resource version, as an API server does
// every five minutes.
func compactEtcd(t *testing.T, e *envtest.Environment, resourceVersion string) {
	t.Helper()
	client := etcdClient(t, e)
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// The first call only returns the logical time of the servers' compactions.
	turn, _, _, err := etcd3.Compact(t.Context(), client, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, compacted, err := etcd3.Compact(t.Context(), client, turn, revision); err != nil || compacted != revision {
		t.Fatalf("compact: got revision %d, want %d (%v)", compacted, revision, err)
	}
}

// checkExpired checks that a list of an old state is rejected, and that a list whose first page
// had a and b in that state can be continued in the present state.
func checkExpired(t *testing.T, r envtest.Endpoint, collection string, page *unstructured.UnstructuredList) {
	t.Helper()
	status := r.Do(t, http.MethodGet,
		collection+"?resourceVersionMatch=Exact&resourceVersion="+page.GetResourceVersion(), nil, nil).Failure(t)
	if status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired || status.Continue != "" {
		t.Errorf("list of the past: got %d %s with continue %q, want 410 Expired without", status.Code, status.Reason,
			status.Continue)
	}
	status = r.Do(t, http.MethodGet, collection+"?limit=1&continue="+page.GetContinue(), nil, nil).Failure(t)
	if status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired || status.Continue == "" {
		t.Fatalf("next page of the past: got %d %s with continue %q, want 410 Expired with a token", status.Code,
			status.Reason, status.Continue)
	}
	var got []string
	for token := status.Continue; token != ""; {
		page := r.Do(t, http.MethodGet, collection+"?limit=1&continue="+token, nil, nil).List(t)
		got = append(got, objectNames(page.Items)...)
		token = page.GetContinue()
	}
	// c was deleted, e was created, and no object occurs twice.
	if diff := cmp.Diff([]string{"d", "e"}, got); diff != "" {
		t.Errorf("the rest of the list, of the present (-want +got):\n%s", diff)
	}
}

// checkWatchExpired checks that the only event of a watch from an expired resource version is the
// error.
func checkWatchExpired(t *testing.T, r envtest.Endpoint, collection string, page *unstructured.UnstructuredList) {
	t.Helper()
	for _, query := range []string{"", "&allowWatchBookmarks=true", "&labelSelector=a",
		"&fieldSelector=metadata.name%3Da"} {
		events := r.Do(t, http.MethodGet,
			collection+"?watch=1&timeoutSeconds=30&resourceVersion="+page.GetResourceVersion()+query, nil,
			nil).Events(t)
		if len(events) != 1 || events[0].Type != watch.Error {
			t.Fatalf("watch from the past%s: got %s, want one event ERROR", query, events)
		}
		if status := (envtest.Response{Status: http.StatusGone, Body: events[0].Object}).Failure(
			t); status.Reason != metav1.StatusReasonExpired {
			t.Errorf("watch from the past%s: got reason %s, want Expired", query, status.Reason)
		}
	}
}
