// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// TestS37WriteDeadline checks that a response that the client does not read ends, that a response
// that it reads slowly continues, and that pauses between writes have no limit.
func TestS37WriteDeadline(t *testing.T) {
	const timeout, patience = 500 * time.Millisecond, 30 * time.Second
	piece := make([]byte, 1<<20)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			ended := make(chan error, 1)
			ts := httptest.NewUnstartedServer(WithDeadlines(
				http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					flusher := w.(http.Flusher)
					flusher.Flush()
					if req.URL.Path == "/silent" {
						// Longer than the deadline, which applies to each write only.
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
				}), timeout, notFrontProxy))
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
				t.Errorf("after a pause: got %q and error %v, want the rest of the response", body, err)
			}
			unread := get("/unread")
			defer unread.Body.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the response ended without an error, want that of a write that could not continue")
				}
			case <-time.After(patience):
				t.Fatalf("the response that the client does not read is still being written after %s", patience)
			}
		})
	}
}

// TestS37ReadDeadline checks that a read of a body that takes too long fails, that a body that
// arrives in time does not limit the handler afterwards, and that 401 is sent before the body
// arrives.
func TestS37ReadDeadline(t *testing.T) {
	const timeout, patience = 500 * time.Millisecond, 30 * time.Second
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			ended := make(chan error, 1)
			ts := httptest.NewUnstartedServer(WithDeadlines(
				http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.URL.Path == "/unauthorized" {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					_, err := io.ReadAll(req.Body)
					if req.URL.Path == "/long" && err == nil {
						select {
						case <-req.Context().Done():
							err = req.Context().Err()
						case <-time.After(3 * timeout):
						}
					}
					ended <- err
				}), timeout, notFrontProxy))
			ts.EnableHTTP2 = http2
			ts.StartTLS()
			defer ts.Close()
			// post starts a request with a body of two bytes and sends the first one. The caller
			// sends the second one.
			post := func(path string) (status chan int, body *io.PipeWriter) {
				t.Helper()
				reader, body := io.Pipe()
				status = make(chan int, 1)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL+path, reader)
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = 2
				go func() {
					resp, err := ts.Client().Do(req)
					if err != nil {
						status <- 0
						return
					}
					_ = resp.Body.Close()
					status <- resp.StatusCode
				}()
				_, _ = io.WriteString(body, "a") // fails if the response has already arrived
				return status, body
			}
			_, slow := post("/slow")
			defer slow.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a body that does not arrive was read to its end")
				}
			case <-time.After(patience):
				t.Fatalf("a body that does not arrive holds the handler after %s", patience)
			}
			_, long := post("/long")
			_, _ = io.WriteString(long, "b")
			_ = long.Close()
			if err := <-ended; err != nil {
				t.Errorf("after a body that arrived: got %v, want the handler to continue", err)
			}
			status, unread := post("/unauthorized")
			defer unread.Close()
			select {
			case got := <-status:
				if got != http.StatusUnauthorized {
					t.Errorf("before the end of the body: got %d, want 401", got)
				}
			case <-time.After(patience):
				t.Fatal("401 waits for the body")
			}
		})
	}
}

// TestS37ResponseBeforeBody checks that an HTTP/1.1 response before the end of the body closes the
// connection, whether or not the handler sets a status. A response after the body does not.
func TestS37ResponseBeforeBody(t *testing.T) {
	for name, tc := range map[string]struct {
		read   bool
		status int
		want   string
	}{"no status": {false, 0, "close"}, "status": {false, http.StatusForbidden, "close"},
		"after the body": {true, 0, ""}} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			WithDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if tc.read {
					_, _ = io.ReadAll(req.Body)
				}
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				_, _ = io.WriteString(w, "answer")
			}), time.Minute, notFrontProxy).ServeHTTP(rec, httptest.NewRequestWithContext(
				t.Context(), http.MethodPost, "/", strings.NewReader("body")))
			if got := rec.Header().Get("Connection"); got != tc.want {
				t.Errorf("Connection: got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestS37ResponseWhileReading checks that an HTTP/1.1 connection closes soon after a response that
// is sent while the body is still being read, as after the library's timeout, although the client
// continues to send.
func TestS37ResponseWhileReading(t *testing.T) {
	const patience = 30 * time.Second
	readEnded := make(chan error, 1)
	ts := httptest.NewTLSServer(WithDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := make(chan struct{})
		go func() {
			_, _ = req.Body.Read(make([]byte, 1))
			close(began)
			_, err := io.ReadAll(req.Body)
			readEnded <- err
		}()
		<-began
		w.WriteHeader(http.StatusGatewayTimeout)
	}), time.Hour, notFrontProxy))
	defer ts.Close()
	config := ts.Client().Transport.(*http.Transport).TLSClientConfig
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\na"); err != nil {
		t.Fatal(err)
	}
	go func() {
		for err := error(nil); err == nil; <-time.After(20 * time.Millisecond) {
			_, err = io.WriteString(conn, "a")
		}
	}()
	response, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(response), "HTTP/1.1 504") || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q and error %v within %s, want 504 and the end of the connection", response, err, patience)
	}
	if err := <-readEnded; err == nil {
		t.Error("the body was read to its end")
	}
}

// TestS37StreamsReleased checks that no deadline of an HTTP/2 stream remains after its handler.
// net/http may process a deadline after the stream has ended, and then keeps the stream until the
// deadline.
func TestS37StreamsReleased(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
	req.ProtoMajor = 2
	WithDeadlines(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}), time.Hour, notFrontProxy).ServeHTTP(w, req)
	if !w.Flushed {
		t.Error("the response was not sent in the handler, where it has a deadline")
	}
	for what, deadlines := range map[string][]time.Time{"read": w.read, "write": w.write} {
		if len(deadlines) < 2 || deadlines[0].IsZero() || !deadlines[len(deadlines)-1].IsZero() {
			t.Errorf("deadlines to %s: got %v, want one, and none at the end", what, deadlines)
		}
	}
}

type deadlineRecorder struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (w *deadlineRecorder) SetReadDeadline(deadline time.Time) error {
	w.read = append(w.read, deadline)
	return nil
}

func (w *deadlineRecorder) SetWriteDeadline(deadline time.Time) error {
	w.write = append(w.write, deadline)
	return nil
}
