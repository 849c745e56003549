// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Endpoint sends unmodified requests of a user to a server, for tests of details that client
// libraries choose, repair or hide.
type Endpoint struct {
	Client *http.Client
	URL    string
}

// NewEndpoint returns an Endpoint for the user of a client configuration. It does not follow
// redirects.
func NewEndpoint(t testing.TB, config *rest.Config) Endpoint {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(client.CloseIdleConnections)
	return Endpoint{client, config.Host}
}

// Open sends a request and returns the response with its body unread, as needed for a watch. The
// caller must close the body. The content type of the request is JSON unless the header sets
// another.
func (e Endpoint) Open(t testing.TB, method, path string, header http.Header, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, header)
	resp, err := e.Client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// Do sends a request and reads the response. A connection error fails the test.
func (e Endpoint) Do(t testing.TB, method, path string, header http.Header, body []byte) Response {
	t.Helper()
	resp := e.Open(t, method, path, header, body)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the response: %v", method, path, err)
	}
	return Response{resp.StatusCode, resp.Header, data}
}

// Must is Do for requests that prepare a test: a response other than 2xx fails the test.
func (e Endpoint) Must(t testing.TB, method, path string, header http.Header, body []byte) Response {
	t.Helper()
	a := e.Do(t, method, path, header, body)
	if a.Status/100 != 2 {
		t.Fatalf("%s %s: %s, want 2xx", method, path, a)
	}
	return a
}

// Get is Must with the method GET.
func (e Endpoint) Get(t testing.TB, path string, header http.Header) Response {
	t.Helper()
	return e.Must(t, http.MethodGet, path, header, nil)
}

// Response is an unmodified response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a Response) String() string { return fmt.Sprintf("%d %.500s", a.Status, a.Body) }

// Failure decodes the Status of an error response.
func (a Response) Failure(t testing.TB) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.Body, &status); err != nil || status.Kind != "Status" || int(status.Code) != a.Status {
		t.Fatalf("got %s, want a Status with the same code (%v)", a, err)
	}
	return status
}

// List decodes a list.
func (a Response) List(t testing.TB) *unstructured.UnstructuredList {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(a.Body); err != nil || a.Status != http.StatusOK {
		t.Fatalf("got %s, want 200 and a list (%v)", a, err)
	}
	return list
}

// WatchEvent is one line of a watch.
type WatchEvent struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Events decodes the events of a watch that has ended.
func (a Response) Events(t testing.TB) []WatchEvent {
	t.Helper()
	if a.Status != http.StatusOK {
		t.Fatalf("got %s, want 200 and a watch", a)
	}
	var events []WatchEvent
	for line := range strings.Lines(string(a.Body)) {
		var event WatchEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("line %q of a watch: %v", line, err)
		}
		events = append(events, event)
	}
	return events
}
