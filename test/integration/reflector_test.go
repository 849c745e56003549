// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestWidgetReflectors checks that an informer survives a restart of the extension API server,
// and a gap that the server no longer has in its watch cache. The informer gets 410 Gone, lists
// again, and its handlers receive all changes of the meantime.
func TestWidgetReflectors(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	namespace := e.NewNamespace(t)
	client := widgetCase.client(t, e.Admin(t), namespace)
	create := func(name string) {
		t.Helper()
		e.Eventually(t, "widget "+name, envtest.WaitTimeout, func(ctx context.Context) error {
			_, err := client.Create(ctx, widgetCase.object(t, name), metav1.CreateOptions{})
			return err
		})
	}
	create("a")
	var observers []*observer
	for kind := range informers {
		observers = append(observers, observe(t, e, kind, true, namespace), observe(t, e, kind, false, namespace))
	}
	for _, o := range observers {
		o.expect(t, "initial a")
	}

	if err := e.RestartServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	create("b")
	for _, o := range observers {
		o.expect(t, "add b")
	}

	// Wait for an event: a watch that ends before its first one is an error for the informer, and
	// makes it list again.
	create("c")
	for _, o := range observers {
		o.expect(t, "add c")
		o.traffic.cut(t)
	}
	if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create("d")
	// The watch cache of the new process starts after these changes.
	if err := e.RestartServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	// kube-apiserver may not have noticed the restart yet. Its 503 response would make an
	// informer list instead of continuing its watch.
	e.Eventually(t, "the API after the restart", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	for _, o := range observers {
		o.traffic.resume()
	}
	for _, o := range observers {
		o.expect(t, "missed the deletion of "+namespace+"/a", "add d")
		if !o.traffic.received("too old resource version") {
			t.Errorf("%s: never received that its resourceVersion is too old; requests: %q", o.name, o.traffic.list())
		}
		keys := o.GetStore().ListKeys()
		slices.Sort(keys)
		if diff := cmp.Diff([]string{namespace + "/b", namespace + "/c", namespace + "/d"}, keys); diff != "" {
			t.Errorf("%s: objects in the store (-want +got):\n%s", o.name, diff)
		}
	}
}

// traffic records the traffic between a client and kube-apiserver, and can interrupt it.
type traffic struct {
	next      http.RoundTripper
	mu        sync.Mutex
	requests  []string
	responses bytes.Buffer
	open      []io.Closer
	// gate blocks requests while it is not nil. held is closed when the first request is blocked.
	gate, held chan struct{}
}

func (f *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	f.next = next
	return f
}

// RoundTrip implements http.RoundTripper.
func (f *traffic) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := f.pass(req); err != nil {
		return nil, err
	}
	resp, err := f.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	// The pipe lets a response end between two events, as it does when a server closes a watch.
	body := resp.Body
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(io.MultiWriter(f, writer), body)
		writer.CloseWithError(errors.Join(err, body.Close()))
	}()
	resp.Body = pipedBody{reader, body}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, writer)
	return resp, nil
}

// pipedBody is the readable end of a response. Closing it also closes the connection.
type pipedBody struct {
	*io.PipeReader
	body io.Closer
}

// Close implements io.Closer.
func (b pipedBody) Close() error { return errors.Join(b.PipeReader.Close(), b.body.Close()) }

// pass records a request, and blocks it while the traffic is cut.
func (f *traffic) pass(req *http.Request) error {
	query, what := req.URL.Query(), "list"
	switch {
	case query.Get("sendInitialEvents") == "true":
		what = "watch with the list"
	case query.Get("watch") == "true":
		what = "watch"
	}
	f.mu.Lock()
	f.requests = append(f.requests, what)
	gate := f.gate
	if gate != nil && f.held != nil {
		close(f.held)
		f.held = nil
	}
	f.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// Write records a part of a response.
func (f *traffic) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.responses.Write(p)
}

func (f *traffic) received(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Contains(f.responses.String(), text)
}

func (f *traffic) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// cut ends all open responses, and returns when the client's next request is blocked.
func (f *traffic) cut(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	f.gate, f.held = make(chan struct{}), make(chan struct{})
	held, open := f.held, f.open
	f.open = nil
	f.mu.Unlock()
	for _, stream := range open {
		_ = stream.Close()
	}
	select {
	case <-held:
	case <-time.After(envtest.WaitTimeout):
		t.Fatalf("no request within %s after the traffic was cut; before: %q", envtest.WaitTimeout, f.list())
	}
}

func (f *traffic) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gate)
	f.gate = nil
}
