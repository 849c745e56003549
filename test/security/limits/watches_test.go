// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestObjectsLeaveSelectors checks that the server encodes a large object only once when a small
// change removes it from the selectors of many watches, each of which sends an event to its client.
func TestObjectsLeaveSelectors(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: later tests would have less memory")
	}
	const watches, left = 60, `{"type":"DELETED","object":`
	reader, writer := costlyUsers(t)
	object := escapedObjects + "/w0"
	label := func(value string) {
		t.Helper()
		status, _, err := writer.send(t.Context(), request{method: http.MethodPatch, path: object,
			contentType: "application/merge-patch+json",
			body:        fmt.Appendf(nil, `{"metadata":{"labels":{"selected":%s}}}`, value)})
		if err != nil || status != http.StatusOK {
			t.Fatalf("set the label to %s: %d %v", value, status, err)
		}
	}
	label("null")
	// Without the existing objects, a watch needs no memory for them.
	query := url.Values{"watch": {"1"}, "labelSelector": {"!selected"}, "resourceVersion": {currentVersion(t)},
		"timeoutSeconds": {"10"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	responses := make([]io.Reader, watches)
	for i := range responses {
		responses[i] = openWatch(ctx, t, reader, escapedObjects+"?"+query.Encode(), jsonType)
	}
	check := peaks(t, 100)
	label(`"no"`)
	var all sync.WaitGroup
	told := make(chan string, watches)
	for _, r := range responses {
		all.Go(func() {
			event := make([]byte, len(left))
			n, err := io.ReadFull(r, event)
			told <- fmt.Sprintf("%s, %v", event[:n], err)
			_, _ = io.Copy(io.Discard, r)
		})
	}
	all.Wait()
	close(told)
	events := map[string]int{}
	for event := range told {
		events[event]++
	}
	if diff := cmp.Diff(map[string]int{left + ", <nil>": watches}, events); diff != "" {
		t.Errorf("what the watches began with, and the errors (-want +got):\n%s", diff)
	}
	check()
}

// openWatch returns the events of a watch, which ends with the context.
func openWatch(ctx context.Context, t *testing.T, c client, path, accept string) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch %s as %s: %s", path, accept, resp.Status)
	}
	return resp.Body
}

// TestWatchEncodings checks the memory of the server while a watched object changes repeatedly,
// with watches of each encoding, some of whose clients do not read. The server does not keep
// encoded events for those.
func TestWatchEncodings(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: later tests would have less memory")
	}
	reader, writer := costlyUsers(t)
	write := func(r request) {
		t.Helper()
		if status, _, err := writer.send(t.Context(), r); err != nil || status >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %d %v", r.method, r.path, status, err)
		}
	}
	write(request{method: http.MethodPost, path: smallObjects, contentType: jsonType,
		body: widget("encoded", 240_000, 0, "<")})
	defer write(request{method: http.MethodDelete, path: smallObjects + "/encoded"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func(version, accept, more string) io.Reader {
		query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=encoded"},
			"resourceVersion": {currentVersion(t)}, "timeoutSeconds": {"60"}}
		return openWatch(ctx, t, reader, strings.Replace(smallObjects, "/v1/", "/"+version+"/", 1)+"?"+query.Encode()+more,
			accept)
	}
	var read []io.Reader
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		read = append(read, open(version, jsonType, ""), open(version, protobufType+";stream=watch", ""))
	}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, more := range []string{"", "&includeObject=Object", "&includeObject=Metadata", "&includeObject=None"} {
			read = append(read, open("v1", jsonType+";as=Table;g=meta.k8s.io;v="+version, more))
		}
	}
	check := peaks(t, 150)
	var all sync.WaitGroup
	for _, r := range read {
		all.Go(func() { _, _ = io.Copy(io.Discard, r) })
	}
	for i := range 60 {
		if i%15 == 0 {
			_ = open("v1", jsonType, "") // never read
		}
		write(request{method: http.MethodPatch, path: smallObjects + "/encoded", contentType: "application/merge-patch+json",
			body: fmt.Appendf(nil, `{"metadata":{"labels":{"a":"%d"}}}`, i)})
	}
	check()
	cancel()
	all.Wait()
}

// TestRejectedWatches checks that watches that the server rejects, because no watch can be sent in
// the format that the client accepts, keep no memory.
func TestRejectedWatches(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: later tests would have less memory")
	}
	reader, _ := costlyUsers(t)
	check := peaks(t, 100)
	statuses := map[int]int{}
	const watches = 2000
	for range watches {
		status, _, err := reader.send(t.Context(), request{method: http.MethodGet, accept: "application/yaml",
			path: smallObjects + "?watch=1&resourceVersion=0&timeoutSeconds=600"})
		if err != nil {
			t.Fatal(err)
		}
		statuses[status]++
	}
	if diff := cmp.Diff(map[int]int{http.StatusNotAcceptable: watches}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	check()
}
