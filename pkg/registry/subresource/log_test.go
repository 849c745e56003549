// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// statusResponder responds with the status of an error, like the library.
type statusResponder struct{ w http.ResponseWriter }

func (statusResponder) Object(int, runtime.Object) {}
func (r statusResponder) Error(err error) {
	code := http.StatusInternalServerError
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	http.Error(r.w, err.Error(), code)
}

// serveLog serves the log of the object that the path names. end cancels the context of the log.
func serveLog(t *testing.T, write WriteLog) (url string, end context.CancelCauseFunc) {
	t.Helper()
	ended, end := context.WithCancelCause(context.Background())
	storage := NewLog(&oneGadget{}, func() runtime.Object { return &metav1.GetOptions{} }, write).(rest.Connecter)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			switch reason := recover(); reason {
			case nil:
			case http.ErrAbortHandler:
				panic(reason)
			default: // like the library
				http.Error(w, "panic", http.StatusInternalServerError)
			}
		}()
		ctx, cancel := context.WithCancelCause(req.Context())
		defer context.AfterFunc(ended, func() { cancel(context.Cause(ended)) })()
		handler, err := storage.Connect(ctx, strings.Trim(req.URL.Path, "/"), &metav1.GetOptions{ResourceVersion: "7"},
			statusResponder{w})
		if err != nil {
			statusResponder{w}.Error(err)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	logClient = server.Client()
	t.Cleanup(func() {
		end(nil)
		server.Close()
	})
	return server.URL, end
}

// logClient is the client of the last server that serveLog started.
var logClient *http.Client

func getLog(t *testing.T, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := logClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestLog: the response is the text that the log writes. An error before the first write is the
// status of the response, and a later error aborts the response.
func TestLog(t *testing.T) {
	tooLate := apierrors.NewResourceExpired("too late")
	for name, tc := range map[string]struct {
		object string
		lines  int
		err    error
		code   int
		broken bool
	}{
		"whole":            {"g", 3, nil, http.StatusOK, false},
		"empty":            {"g", 0, nil, http.StatusOK, false},
		"no object":        {"h", 1, nil, http.StatusNotFound, false},
		"an error at once": {"g", 0, tooLate, http.StatusGone, false},
		"any other error":  {"g", 0, errors.New("broken"), http.StatusInternalServerError, false},
		"an error later":   {"g", 2, errors.New("broken"), http.StatusOK, true},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serveLog(t, func(_ context.Context, obj, options runtime.Object, w io.Writer) error {
				for i := range tc.lines {
					_, _ = fmt.Fprintf(w, "%s %s %d\n", obj.(*v1.Gadget).Name, options.(*metav1.GetOptions).ResourceVersion, i)
				}
				return tc.err
			})
			resp := getLog(t, url+"/"+tc.object) //nolint:bodyclose // it does
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.code || (err != nil) != tc.broken {
				t.Errorf("got %s and the error %v, want %d and an error: %t", resp.Status, err, tc.code, tc.broken)
			}
			if tc.code != http.StatusOK {
				return
			}
			if got := resp.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("got the content type %q, want text", got)
			}
			want := "g 7 0\ng 7 1\ng 7 2\n"[:6*tc.lines]
			if string(body) != want {
				t.Errorf("got %q, want %q", body, want)
			}
		})
	}
}

// TestLogFollow: each write is sent at once. When the context of a log is done, the client
// receives an aborted response.
func TestLogFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		ignores bool // whether the log ignores its context until a write fails
		cause   error
	}{
		"the permission is gone": {false, apierrors.NewForbidden(v1.Resource("gadgets"), "g", errors.New("gone"))},
		"the server stops":       {true, apierrors.NewServiceUnavailable("stopping")},
	} {
		t.Run(name, func(t *testing.T) {
			lines, ended := make(chan string), make(chan error, 1)
			url, end := serveLog(t, func(ctx context.Context, _, _ runtime.Object, w io.Writer) (err error) {
				defer func() { ended <- err }()
				done := ctx.Done()
				if tc.ignores {
					done = nil
				}
				for {
					select {
					case line := <-lines:
						if _, err := io.WriteString(w, line); err != nil {
							return err
						}
					case <-done:
						return nil
					}
				}
			})
			resp := getLog(t, url+"/g") //nolint:bodyclose // the header is there before the first line; getLog closes it
			read := bufio.NewReader(resp.Body)
			for _, line := range []string{"a\n", "b\n"} {
				lines <- line
				if got, err := read.ReadString('\n'); err != nil || got != line {
					t.Fatalf("got %q, %v, want %q", got, err, line)
				}
			}
			end(tc.cause)
			for goesOn := tc.ignores; goesOn; {
				select {
				case lines <- "c\n":
				case err := <-ended:
					if goesOn = false; !errors.Is(err, tc.cause) {
						t.Errorf("the write failed with %v, want %v", err, tc.cause)
					}
				}
			}
			if rest, err := io.ReadAll(read); err == nil {
				t.Errorf("got %q and no error, want a response that is broken off", rest)
			}
		})
	}
}

// TestLogEndsWithoutClient: a log ends without an error when its client disconnects.
func TestLogEndsWithoutClient(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	w := httptest.NewRecorder()
	storage := NewLog(&oneGadget{}, func() runtime.Object { return &metav1.GetOptions{} },
		func(ctx context.Context, _, _ runtime.Object, w io.Writer) error {
			_, _ = io.WriteString(w, "a\n")
			leave()
			<-ctx.Done()
			_, err := io.WriteString(w, "b\n")
			return err
		}).(rest.Connecter)
	handler, err := storage.Connect(ctx, "g", &metav1.GetOptions{}, statusResponder{w})
	if err != nil {
		t.Fatal(err)
	}
	handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)) // a panic fails the test
	if got := w.Body.String(); w.Code != http.StatusOK || got != "a\n" {
		t.Errorf("got %d and %q, want 200 and what was written before", w.Code, got)
	}
}

// TestLogUpgrade: a log request with the header Upgrade returns 400.
func TestLogUpgrade(t *testing.T) {
	url, _ := serveLog(t, func(context.Context, runtime.Object, runtime.Object, io.Writer) error { return nil })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/g", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	logClient.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	logClient.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	resp, err := logClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s, want 400", resp.Status)
	}
}

// TestLogPanic: a panic before the log begins returns 500, and nothing is sent afterwards.
func TestLogPanic(t *testing.T) {
	url, _ := serveLog(t, func(context.Context, runtime.Object, runtime.Object, io.Writer) error { panic("no disk") })
	if resp := getLog(t, url+"/g"); resp.StatusCode != http.StatusInternalServerError { //nolint:bodyclose // it does
		t.Errorf("got %s, want 500", resp.Status)
	}
	<-time.After(logBegins + 200*time.Millisecond) // the time when the response would have begun
}
