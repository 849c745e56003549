// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"sync"
	"testing"
)

// TestLogs checks that a user can follow as many logs as the limit of watches allows, whether the
// client reads them or not. The server rejects more with 429, and the memory of the others is
// bounded. A log counts as four watches, because a small object counts as 64 KiB beside many large
// ones.
func TestLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: later tests would have less memory")
	}
	const tries, most, least = 1_100, 1_000, 240
	reader, writer := costlyUsers(t)
	must := func(r request) {
		t.Helper()
		if status, _, err := writer.send(t.Context(), r); err != nil || status >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %d %v", r.method, r.path, status, err)
		}
	}
	must(request{method: http.MethodPost, path: smallObjects, contentType: jsonType, body: widget("logged", 0, 0, "")})
	defer must(request{method: http.MethodDelete, path: smallObjects + "/logged"})
	// The action takes minutes, during which the log is followed.
	must(request{method: http.MethodPost, path: smallObjects + "/logged/calibrate", contentType: jsonType,
		body: []byte(`{"reason":"it is followed"}`)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	check := peaks(t, 200)
	statuses := make(chan int, tries)
	var sent, ended sync.WaitGroup
	sent.Add(tries)
	parallel := make(chan struct{}, 50)
	for range tries {
		ended.Go(func() {
			parallel <- struct{}{}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, reader.base+smallObjects+"/logged/log?follow=true", nil)
			if err != nil {
				t.Error(err)
			}
			resp, err := reader.http.Do(req)
			<-parallel
			if err != nil {
				statuses <- 0
				sent.Done()
				return
			}
			defer resp.Body.Close()
			statuses <- resp.StatusCode
			sent.Done()
			<-ctx.Done()
		})
	}
	sent.Wait()
	check()
	cancel()
	ended.Wait()
	close(statuses)
	got := map[int]int{}
	for status := range statuses {
		got[status]++
	}
	t.Logf("statuses %v", got)
	if n := got[http.StatusOK]; n > most || n < least || got[http.StatusTooManyRequests] != tries-n {
		t.Errorf("got the statuses %v, want %d to %d logs, and 429 for the others", got, least, most)
	}
}
