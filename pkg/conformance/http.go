// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	// excerpt is the maximum size of a body in a report, in bytes.
	excerpt = 4 << 10
	// maxResponse is the maximum size of a response that is read: 64 MiB.
	maxResponse = 64 << 20
	// maxExchanges is the number of requests of a check in a report, counted from the last.
	maxExchanges = 20
)

// request is a request of a check.
type request struct {
	query  url.Values
	header http.Header
	body   []byte
	to     endpoint
}

// endpoint is the destination of requests.
type endpoint struct {
	client *http.Client
	host   string
}

type option func(*request)

// query adds a parameter.
func query(name, value string) option {
	return func(r *request) { r.query.Add(name, value) }
}

// header sets a header.
func header(name, value string) option {
	return func(r *request) { r.header.Set(name, value) }
}

// accept sets the media types that the client accepts. An empty string removes the header.
func accept(types string) option {
	return func(r *request) {
		r.header.Set("Accept", types)
		if types == "" {
			r.header.Del("Accept")
		}
	}
}

// text sets an unmodified body.
func text(contentType, data string) option {
	return func(r *request) {
		r.body = []byte(data)
		r.header.Set("Content-Type", contentType)
	}
}

// body sets an object as JSON body.
func body(obj any) option {
	return func(r *request) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			obj = u.Object
		}
		data, err := json.Marshal(obj)
		if err != nil {
			panic(err) // cannot happen for maps and strings
		}
		r.body = data
		if r.header.Get("Content-Type") == "" {
			r.header.Set("Content-Type", "application/json")
		}
	}
}

// Content types of patches.
const (
	typeMergePatch     = "application/merge-patch+json"
	typeJSONPatch      = "application/json-patch+json"
	typeStrategicPatch = "application/strategic-merge-patch+json"
	typeApply          = "application/apply-patch+yaml"
)

func typed(contentType string, data any) option {
	return func(r *request) {
		r.header.Set("Content-Type", contentType)
		body(data)(r)
	}
}

func mergePatch(patch any) option { return typed(typeMergePatch, patch) }

// jsonPatch sets a JSON patch with these operations, unmodified.
func jsonPatch(operations string) option { return text(typeJSONPatch, operations) }

// as impersonates a user.
func as(user string) option { return header("Impersonate-User", user) }

// at sends a request to another endpoint than kube-apiserver.
func at(to endpoint) option { return func(r *request) { r.to = to } }

// response is the response of a server.
type response struct {
	Code    int
	Header  http.Header
	Body    []byte
	request string
	s       *session
}

// String returns the text that errors contain about a response.
func (a *response) String() string {
	status := struct{ Reason, Message string }{}
	if json.Unmarshal(a.Body, &status) == nil && status.Message != "" {
		return fmt.Sprintf("%d %s: %.300s", a.Code, status.Reason, status.Message)
	}
	return fmt.Sprintf("%d with %.100q", a.Code, a.Body)
}

// object decodes the body as an object.
func (a *response) object() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(a.Body, &obj.Object); err != nil || obj.Object == nil {
		a.s.fatalf("%s: the body is %.300q, want a JSON object (%v)", a.request, a.Body, err)
	}
	return obj
}

// items returns the items of a list.
func (a *response) items() []unstructured.Unstructured {
	list := a.object()
	if _, ok := list.Object["items"].([]any); !ok {
		a.s.fatalf("%s: the response has no items, want a list: %.300q", a.request, a.Body)
	}
	out, err := list.ToList()
	if err != nil {
		a.s.fatalf("%s: %v", a.request, err)
	}
	return out.Items
}

// names returns the names of the items of a list.
func (a *response) names() []string {
	out := []string{}
	for _, item := range a.items() {
		out = append(out, item.GetName())
	}
	return out
}

// open sends a request. The caller must close the body.
func (s *session) open(ctx context.Context, method, path string, options ...option) (*http.Response, string) {
	r := request{query: url.Values{}, header: http.Header{"Accept": {"application/json"},
		"User-Agent": {"conformance/v1"}}, to: s.r.kubeAPIServer}
	for _, o := range options {
		o(&r)
	}
	target := path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	line := method + " " + target
	req, err := http.NewRequestWithContext(ctx, method, r.to.host+target, bytes.NewReader(r.body))
	if err != nil {
		s.fatalf("%s: %v", line, err)
	}
	req.Header = r.header
	resp, err := r.to.client.Do(req)
	exchange := Exchange{Request: line, Body: truncated(r.body)}
	for _, name := range []string{"Accept", "Content-Type", "Impersonate-User"} {
		if value := r.header.Get(name); value != "" && value != "application/json" {
			exchange.Request += "\n" + name + ": " + value
		}
	}
	if err != nil {
		exchange.Error = err.Error()
	} else {
		exchange.Code = resp.StatusCode
	}
	if len(s.exchanges) == maxExchanges {
		s.exchanges = s.exchanges[1:]
	}
	s.exchanges = append(s.exchanges, exchange)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		s.fatalf("%s: %v", line, err)
	}
	return resp, line
}

// do sends a request and reads the response. It retries a response of 429 with Retry-After. It
// stops the check if its user lacks a permission that Target.Permissions must have.
func (s *session) do(method, path string, options ...option) *response {
	for {
		a := s.once(method, path, options...)
		seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if a.Code != http.StatusTooManyRequests || err != nil {
			s.expectPermitted(a)
			return a
		}
		select { // a retry after API Priority and Fairness rejected the request
		case <-s.ctx.Done():
			return a
		case <-time.After(time.Duration(max(seconds, 1)) * time.Second):
		}
	}
}

// once is do without retries.
func (s *session) once(method, path string, options ...option) *response {
	ctx := s.ctx
	r := request{query: url.Values{}, header: http.Header{}}
	for _, o := range options {
		o(&r)
	}
	if method == http.MethodPost || r.header.Get("Content-Type") == typeApply { // it may create
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), creationTimeout)
		defer cancel()
	}
	resp, line := s.open(ctx, method, path, options...)
	defer resp.Body.Close()
	data, err := bodyOf(resp)
	last := &s.exchanges[len(s.exchanges)-1]
	last.Response = truncated(data)
	if err == nil && len(data) == maxResponse {
		err = fmt.Errorf("it has more than %d MiB", maxResponse>>20)
	}
	if err != nil {
		last.Error = err.Error()
		s.fatalf("%s: read the response: %v", line, err)
	}
	return &response{Code: resp.StatusCode, Header: resp.Header, Body: data, request: line, s: s}
}

// bodyOf reads a body. After a change of the protocol, the body is a stream that no context
// cancels, so bodyOf does not read it.
func bodyOf(resp *http.Response) ([]byte, error) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxResponse))
}

func truncated(data []byte) string {
	if len(data) <= excerpt {
		return strings.ToValidUTF8(string(data), "\ufffd")
	}
	return strings.ToValidUTF8(string(data[:excerpt]), "\ufffd") + fmt.Sprintf("... (%d bytes)", len(data))
}

// event is an event of a watch.
type event struct {
	Type   string
	Object map[string]any
}

// UnmarshalJSON implements json.Unmarshaler. Numbers have the types that unstructured objects
// use.
func (e *event) UnmarshalJSON(data []byte) error {
	parts := struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	e.Type = parts.Type
	return utiljson.Unmarshal(parts.Object, &e.Object)
}

func (e event) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: e.Object}
}

// String returns the text that errors contain about an event.
func (e event) String() string {
	obj := e.object()
	if e.Type == "ERROR" {
		return fmt.Sprintf("ERROR %v %v", e.Object["code"], e.Object["message"])
	}
	return fmt.Sprintf("%s %s (resourceVersion %s)", e.Type, obj.GetName(), obj.GetResourceVersion())
}

// watcher is an open watch.
type watcher struct {
	s      *session
	line   string
	cancel context.CancelFunc
	events chan event
	header http.Header
}

// watch opens a watch of a collection.
func (s *session) watch(path string, options ...option) *watcher {
	ctx, cancel := context.WithCancel(s.ctx)
	resp, line := s.open(ctx, "GET", path, //nolint:bodyclose // the goroutine below does
		append(options, query("watch", "true"))...)
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse)) // the error shows the part that was read
		_ = resp.Body.Close()
		cancel()
		s.fatalf("%s: got %s, want 200", line, &response{Code: resp.StatusCode, Body: data})
	}
	w := &watcher{s: s, line: line, cancel: cancel, events: make(chan event, 100), header: resp.Header}
	s.watches = append(s.watches, w)
	go func() {
		defer close(w.events)
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for decoder := json.NewDecoder(lines); ; {
			var e event
			if err := decoder.Decode(&e); err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					e = event{Type: "BROKEN", Object: map[string]any{"message": err.Error()}}
				} else {
					return
				}
			}
			select {
			case w.events <- e:
			case <-ctx.Done():
				return
			}
			if e.Type == "BROKEN" {
				return
			}
		}
	}()
	return w
}

// next returns the next event other than bookmarks. It stops the check if there is none in time.
func (w *watcher) next() event {
	for {
		e, ok := w.any()
		if !ok {
			w.s.fatalf("%s: the watch ended, want another event", w.line)
		}
		if e.Type != "BOOKMARK" {
			return e
		}
	}
}

// any returns the next event, including bookmarks, or false at the end of the watch.
func (w *watcher) any() (event, bool) {
	select {
	case e, ok := <-w.events:
		return e, ok
	case <-w.s.ctx.Done():
		w.s.fatalf("%s: no event came: %v", w.line, context.Cause(w.s.ctx))
	}
	return event{}, false
}

// expect returns the next event. It stops the check unless the event has the type and the
// object's name.
func (w *watcher) expect(eventType, name string) event {
	e := w.next()
	if e.Type != eventType || e.object().GetName() != name {
		w.s.fatalf("%s: got the event %s, want %s %s", w.line, e, eventType, name)
	}
	return e
}
