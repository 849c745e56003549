// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// rawReader sends requests as they are written: a client library refuses or repairs some of what the tests send.
type rawReader struct {
	client *http.Client
	host   string
}

func newReader(t *testing.T, e *envtest.Environment) rawReader {
	t.Helper()
	config := adminConfig(t, e)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return rawReader{client, config.Host}
}

// rawAnswer is what came back, to its end.
type rawAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// get reads a path with its query.
func (r rawReader) get(t *testing.T, path string) rawAnswer {
	t.Helper()
	return r.getAll(t, path)[0]
}

// getAll reads paths at the same time: some answers take the server seconds.
func (r rawReader) getAll(t *testing.T, paths ...string) []rawAnswer {
	t.Helper()
	answers := make([]rawAnswer, len(paths))
	errs := make([]error, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		wg.Go(func() {
			finish, err := r.start(t.Context(), path)
			if err == nil {
				answers[i], err = finish()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return answers
}

// start returns when the answer begins; finish reads it to its end. An answer that breaks off is an error: HTTP tells
// whether a body is complete.
func (r rawReader) start(ctx context.Context, path string) (finish func() (rawAnswer, error), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := r.client.Do(req) //nolint:bodyclose // finish closes it
	if err != nil {
		cancel()
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return func() (rawAnswer, error) {
		defer cancel()
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return rawAnswer{}, fmt.Errorf("GET %s: the answer breaks off after %q: %w", path, body, err)
		}
		return rawAnswer{resp.StatusCode, resp.Header, body}, nil
	}, nil
}

// status decodes an error.
func (a rawAnswer) status(t *testing.T) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil || status.Kind != "Status" || int(status.Code) != a.code {
		t.Fatalf("got %d %s, want a Status with the same code (%v)", a.code, a.body, err)
	}
	return status
}

// list decodes a list.
func (a rawAnswer) list(t *testing.T) *unstructured.UnstructuredList {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(a.body); err != nil || a.code != http.StatusOK {
		t.Fatalf("got %d %s, want 200 and a list (%v)", a.code, a.body, err)
	}
	return list
}

// rawEvent is a line of a watch.
type rawEvent struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// events decodes a watch that ended.
func (a rawAnswer) events(t *testing.T) []rawEvent {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("got %d %s, want 200 and a watch", a.code, a.body)
	}
	var events []rawEvent
	for line := range strings.Lines(string(a.body)) {
		var event rawEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("line %q of a watch: %v", line, err)
		}
		events = append(events, event)
	}
	return events
}

// causesOf names the fields of a Status's causes.
func causesOf(status metav1.Status) string {
	if status.Details == nil {
		return ""
	}
	var fields []string
	for _, cause := range status.Details.Causes {
		fields = append(fields, fmt.Sprintf("%s: %s", cause.Field, cause.Type))
	}
	return strings.Join(fields, ", ")
}
