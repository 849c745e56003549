// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestS37WriteDeadline: an answer that nobody reads ends, one that is read slowly does not, and silence in between costs nothing.
func TestS37WriteDeadline(t *testing.T) {
	const timeout, patience = 500 * time.Millisecond, 30 * time.Second
	piece := make([]byte, 1<<20)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			ended := make(chan error, 1)
			ts := httptest.NewUnstartedServer(withWriteDeadline(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				flusher := w.(http.Flusher)
				flusher.Flush()
				if req.URL.Path == "/silent" {
					// Longer than the deadline, which only a piece has.
					var err error
					for _, piece := range []string{"la", "te"} {
						<-time.After(2 * timeout)
						if _, failed := io.WriteString(w, piece); failed != nil {
							err = failed
						}
					}
					ended <- err
					return
				}
				for {
					if _, err := w.Write(piece); err != nil {
						ended <- err
						return
					}
				}
			}), timeout))
			ts.EnableHTTP2 = http2
			ts.StartTLS()
			defer ts.Close()
			get := func(path string) *http.Response {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := ts.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			silent := get("/silent")
			defer silent.Body.Close()
			if body, err := io.ReadAll(silent.Body); string(body) != "late" || err != nil || <-ended != nil {
				t.Errorf("after a silence: got %q and error %v, want the rest of the answer", body, err)
			}
			unread := get("/unread")
			defer unread.Body.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the answer ended without an error, want that of a write that could not go on")
				}
			case <-time.After(patience):
				t.Fatalf("the answer that nobody reads is still being written after %s", patience)
			}
		})
	}
}
