// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeftSelectors: one small change takes a large object out of the selectors of many watches, and each of them tells
// its client so. The server encodes the object once.
func TestLeftSelectors(t *testing.T) {
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
	// Without the objects there are, a watch needs no memory for them.
	query := url.Values{"watch": {"1"}, "labelSelector": {"!selected"}, "resourceVersion": {currentVersion(t)},
		"timeoutSeconds": {"10"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	responses := make([]io.Reader, watches)
	for i := range responses {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, reader.base+escapedObjects+"?"+query.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := reader.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, resp.Status)
		}
		responses[i] = resp.Body
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
