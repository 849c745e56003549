// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReaders checks that another user is served while three users each read as much as the limits
// allow, through kube-apiserver.
func TestReaders(t *testing.T) {
	_, writer := costlyUsers(t)
	const namespace = "middling"
	if _, err := shared.Client(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	middling := fmt.Sprintf("/apis/%s/namespaces/%s/widgets", gadgets.GroupVersion(), namespace)
	for i := range 3 {
		status, _, err := writer.send(t.Context(), request{method: http.MethodPost, path: middling, contentType: jsonType,
			body: widget(fmt.Sprintf("w%d", i), 28_500, 0, "x")})
		if err != nil || status != http.StatusCreated {
			t.Fatalf("create an object: %d, %v", status, err)
		}
	}
	var readers []client
	for i := range 3 {
		readers = append(readers, clientOf(t, shared.User(t, fmt.Sprintf("reader-%d", i), rbacv1.PolicyRule{
			APIGroups: []string{gadgets.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}})))
	}
	past := pastChanges(t, readers[0], writer)
	const byName = allWidgets + "?fieldSelector=metadata.name%3Dnone"
	for name, tc := range map[string]struct {
		path, accept string
		parallel     int
		during       func(context.Context)
	}{
		// Each query is as long as possible without additional cost for selectors, head and
		// events.
		"watches": {path: middling + "?watch=1&labelSelector=" +
			strings.TrimSuffix(strings.Repeat("!abcdefg,", 55), ",") + "&x=" + strings.Repeat("x", 1500), parallel: 1000},
		"lists":                        {path: smallObjects + "?resourceVersion=0", parallel: 20},
		"pages as Tables":              {path: smallObjects + "?limit=500&includeObject=Object", accept: jsonType + table, parallel: 60},
		"long selectors":               {path: smallObjects + "?labelSelector=" + longSelector(), parallel: 60},
		"past changes":                 {path: past, parallel: 20},
		"past changes, long selectors": {path: past + "&labelSelector=" + longSelector(), parallel: 60},
		"lists by name":                {path: byName, parallel: 60},
		"watches by name":              {path: byName + "&watch=1&resourceVersion=0&timeoutSeconds=1", parallel: 60},
		"a large object":               {path: annotatedObjects + "/w1", parallel: 40},
		"watches from the future": {path: allWidgets + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&" +
			"resourceVersionMatch=NotOlderThan&resourceVersion=9000000000000000", parallel: 60},
		"large events": {path: escapedObjects + "?watch=1&resourceVersion=" + currentVersion(t), parallel: 300,
			during: func(ctx context.Context) { changeLarge(ctx, t, writer) }},
	} {
		t.Run(name, func(t *testing.T) {
			readersDuring(t, readers, request{method: http.MethodGet, path: tc.path, accept: tc.accept}, tc.parallel, tc.during)
		})
	}
}

// longSelector returns a selector of labels that is compared with each object as often as possible.
func longSelector() string {
	values := make([]string, 240)
	for i := range values {
		values[i] = fmt.Sprintf("v%04d", i)
	}
	requirements := []string{"n notin (" + strings.Join(values, ",") + ")", "zz=none"} // compared in this order
	for i := range 98 {
		requirements = append(requirements, fmt.Sprintf("n!=w%04d", i))
	}
	return url.QueryEscape(strings.Join(requirements, ","))
}

// changeLarge changes an object with 4 MB of JSON every second.
func changeLarge(ctx context.Context, t *testing.T, writer client) {
	for i := 0; ctx.Err() == nil; i++ {
		sleep(ctx, time.Second)
		status, _, err := writer.send(ctx, request{method: http.MethodPatch, path: escapedObjects + "/w2",
			contentType: "application/merge-patch+json", body: fmt.Appendf(nil, `{"metadata":{"labels":{"a":"%d"}}}`, i)})
		if ctx.Err() == nil && (err != nil || status != http.StatusOK && status != http.StatusTooManyRequests) {
			t.Errorf("change a large object: %d, %v", status, err)
		}
	}
}

// pastChanges changes objects and returns the path of a watch that sends the changes.
func pastChanges(t *testing.T, reader, writer client) (path string) {
	t.Helper()
	const writers, changes = 8, 375
	path = smallObjects + "?watch=1&timeoutSeconds=1&resourceVersion=" + currentVersion(t)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range changes {
				status, _, err := writer.send(t.Context(), request{method: http.MethodPatch,
					path:        fmt.Sprintf("%s/s%d-%d", smallObjects, w, i+1),
					contentType: "application/merge-patch+json", body: []byte(`{"metadata":{"labels":{"changed":"true"}}}`)})
				if err != nil || status != http.StatusOK {
					t.Errorf("change an object: %d, %v", status, err)
				}
			}
		})
	}
	all.Wait()
	status, size, err := reader.send(t.Context(), request{method: http.MethodGet, path: path})
	if err != nil || status != http.StatusOK || size < writers*changes*300 {
		t.Fatalf("a watch of past changes: got %d, %d bytes, %v, want all changes", status, size, err)
	}
	return path
}

// readersDuring checks that the server survives so many concurrent requests of each reader, which
// begin and are repeated so slowly that kube-apiserver is not the one that makes others wait, and
// serves another user. It calls during, unless it is nil, with a context that ends with the requests.
func readersDuring(t *testing.T, readers []client, read request, parallel int, during func(context.Context)) {
	t.Helper()
	lasts, err := time.ParseDuration(attackFor())
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Servers[0].ResetVmHWM(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	done := make(chan string)
	var all sync.WaitGroup
	var mutex sync.Mutex
	statuses := map[int]int{}
	if testing.Short() {
		parallel = max(20, parallel/4)
	}
	for _, reader := range readers {
		for i := range parallel {
			all.Go(func() {
				sleep(ctx, time.Duration(i)*20*time.Millisecond)
				for ctx.Err() == nil {
					status, _, _ := reader.send(ctx, read) // it may end at any time
					mutex.Lock()
					statuses[status]++
					mutex.Unlock()
					if status != http.StatusOK {
						sleep(ctx, 20*time.Second)
					}
				}
			})
		}
	}
	if during != nil {
		all.Go(func() { during(ctx) })
	}
	go func() { all.Wait(); close(done) }()
	survived(t, done, func() string { return fmt.Sprint(statuses) })
}
