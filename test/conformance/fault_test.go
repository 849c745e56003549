// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// fault simulates a faulty server: it changes requests before the server receives them, and
// responses before the client does.
type fault struct {
	request  func(*http.Request)
	response func(*http.Request, *http.Response)
	// instead replaces the response of the server, unless it returns nil.
	instead func(*http.Request, http.RoundTripper) *http.Response
	// fresh returns a new fault for each run. Set it if the fault has state.
	fresh func() fault
	// everywhere makes the fault apply to requests for other APIs, too.
	everywhere bool
}

// ours lists the path prefixes that faults apply to. Requests for other APIs concern namespaces,
// permissions and policies.
var ours = []string{"/apis/workshop.example.com/", "/openapi/", "/metrics", "/livez", "/readyz"}

type faulty struct {
	fault
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	about := req.URL.Path == "/apis" || slices.ContainsFunc(ours,
		func(prefix string) bool { return strings.HasPrefix(req.URL.Path, prefix) })
	if !about && !f.everywhere {
		return f.next.RoundTrip(req)
	}
	sent := req.Clone(req.Context())
	if f.instead != nil {
		if resp := f.instead(sent, f.next); resp != nil {
			return resp, nil
		}
	}
	if f.request != nil {
		f.request(sent)
	}
	resp, err := f.next.RoundTrip(sent)
	if err == nil && f.response != nil {
		f.response(req, resp)
	}
	return resp, err
}

// content reads a body and replaces it, so that it can be read again.
func content(body *io.ReadCloser) []byte {
	if *body == nil {
		return nil
	}
	data, _ := io.ReadAll(*body) // keep the data that arrived before the connection broke
	_ = (*body).Close()
	*body = io.NopCloser(bytes.NewReader(data))
	return data
}

func setRequestBody(req *http.Request, data []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func respond(req *http.Request, code int, data []byte) *http.Response {
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
		ContentLength: int64(len(data))}
}

// onObject changes the objects in JSON responses, except those of watches.
func onObject(change func(req *http.Request, resp *http.Response,
	obj map[string]any)) func(*http.Request, *http.Response) {
	return func(req *http.Request, resp *http.Response) {
		if req.URL.Query().Get("watch") == "true" || !strings.Contains(resp.Header.Get("Content-Type"), "json") {
			return
		}
		data := content(&resp.Body)
		obj := map[string]any{}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		if decoder.Decode(&obj) != nil {
			return
		}
		change(req, resp, obj)
		out, _ := json.Marshal(obj) // it was decoded from JSON
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(out)), int64(len(out))
		resp.Header.Del("Content-Length")
	}
}

// onBody changes the objects in JSON requests.
func onBody(change func(req *http.Request, obj map[string]any)) func(*http.Request) {
	return func(req *http.Request) {
		data := content(&req.Body)
		obj := map[string]any{}
		if json.Unmarshal(data, &obj) == nil {
			change(req, obj)
			data, _ = json.Marshal(obj) // it was decoded from JSON
		}
		setRequestBody(req, data)
	}
}

// without removes parameters from the query.
func without(names ...string) func(*http.Request) {
	return func(req *http.Request) {
		query := req.URL.Query()
		for _, name := range names {
			query.Del(name)
		}
		req.URL.RawQuery = query.Encode()
	}
}

func inMetadata(obj map[string]any, change func(map[string]any)) {
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		change(metadata)
	}
}

// each calls change with an object, or with each item of a list.
func each(obj map[string]any, change func(map[string]any)) {
	items, ok := obj["items"].([]any)
	if !ok {
		change(obj)
		return
	}
	for _, item := range items {
		if element, ok := item.(map[string]any); ok {
			change(element)
		}
	}
}

// drops removes fields of the metadata from responses.
func drops(fields ...string) fault {
	return fault{response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) { //nolint:bodyclose // the client does
		each(obj, func(obj map[string]any) {
			inMetadata(obj, func(metadata map[string]any) {
				for _, field := range fields {
					delete(metadata, field)
				}
			})
		})
	})}
}

// replaceCode replaces a status code by another, like a server that maps errors wrongly.
func replaceCode(from, to int) fault {
	return fault{response: func(_ *http.Request, resp *http.Response) {
		if resp.StatusCode == from {
			resp.StatusCode = to
		}
	}}
}

// events replaces each event of a watch by the events that change returns, none if it returns
// nil.
func events(change func(n int, event map[string]any) []map[string]any) fault {
	return fault{response: func(req *http.Request, resp *http.Response) {
		if req.URL.Query().Get("watch") != "true" || resp.StatusCode != http.StatusOK ||
			!strings.Contains(resp.Header.Get("Content-Type"), "json") {
			return
		}
		from, in := io.Pipe()
		body := resp.Body
		resp.Body = struct {
			io.Reader
			io.Closer
		}{from, body}
		go func() {
			decoder := json.NewDecoder(body)
			decoder.UseNumber()
			for n := 0; ; n++ {
				event := map[string]any{}
				if err := decoder.Decode(&event); err != nil {
					_ = in.CloseWithError(io.EOF)
					return
				}
				for _, e := range change(n, event) {
					data, _ := json.Marshal(e) // it was decoded from JSON
					if _, err := in.Write(append(data, '\n')); err != nil {
						return
					}
				}
			}
		}()
	}}
}

// ofType changes only events of one type.
func ofType(eventType string, change func(map[string]any) []map[string]any) fault {
	return events(func(_ int, event map[string]any) []map[string]any {
		if event["type"] == eventType {
			return change(event)
		}
		return []map[string]any{event}
	})
}

func renamed(eventType string) func(map[string]any) []map[string]any {
	return func(event map[string]any) []map[string]any {
		event["type"] = eventType
		return []map[string]any{event}
	}
}

func dropped(map[string]any) []map[string]any { return nil }

// faults holds servers by name, each with one fault. Real servers had such faults.
var faults = map[string]fault{
	"accepts invalid requests": {response: func(req *http.Request, resp *http.Response) {
		if resp.StatusCode < 400 || resp.StatusCode == 404 && req.Method == http.MethodGet {
			return
		}
		data := []byte(`{"kind":"Widget","apiVersion":"workshop.example.com/v1","metadata":{"name":"x","namespace":"default","uid":"1","resourceVersion":"1"},"items":[]}`)
		*resp = *respond(req, map[bool]int{true: 201, false: 200}[req.Method == http.MethodPost], data)
	}},
	"creates are conflicts the second time": {fresh: func() fault {
		var posts atomic.Int64
		return fault{response: func(req *http.Request, resp *http.Response) {
			if req.Method == http.MethodPost && posts.Add(1) > 1 {
				*resp = *respond(req, 409, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`))
			}
		}}
	}},
	"finds missing objects": {response: func(req *http.Request, resp *http.Response) {
		if resp.StatusCode == 404 || resp.StatusCode == 405 {
			*resp = *respond(req, 200, []byte(`{"kind":"Widget","apiVersion":"workshop.example.com/v1","metadata":{"name":"x","uid":"1"},"items":[]}`))
		}
	}},
	"another uid each time": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		if metadata, ok := obj["metadata"].(map[string]any); ok && metadata["uid"] != nil {
			metadata["uid"] = uuid.NewString()
		}
	})},
	"errors without a Status": {response: func(req *http.Request, resp *http.Response) {
		if resp.StatusCode >= 400 {
			*resp = *respond(req, resp.StatusCode, []byte("it failed"))
			resp.Header.Set("Content-Type", "text/plain")
		}
	}},
	"errors without reason and details": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			if obj["kind"] == "Status" {
				delete(obj, "reason")
				delete(obj, "details")
				obj["message"] = "it failed"
			}
		})},
	"422 is 500": replaceCode(422, 500), "400 is 500": replaceCode(400, 500), "404 is 500": replaceCode(404, 500),
	"409 is 500": replaceCode(409, 500), "403 is 500": replaceCode(403, 500),
	"405 is 404": replaceCode(405, 404), "415 is 400": replaceCode(415, 400), "406 is 400": replaceCode(406, 400),
	"413 is 500": replaceCode(413, 500), "201 is 200": replaceCode(201, 200),
	"504 is 500": replaceCode(504, 500), "304 is 200": replaceCode(304, 200),
	"no dry run":            {request: without("dryRun")},
	"no field validation":   {request: without("fieldValidation")},
	"no label selectors":    {request: without("labelSelector")},
	"no field selectors":    {request: without("fieldSelector")},
	"no limit":              {request: without("limit", "continue")},
	"tokens are ignored":    {request: without("continue")},
	"no resource versions":  {request: without("resourceVersion", "resourceVersionMatch")},
	"matches are ignored":   {request: without("resourceVersionMatch")},
	"no initial events":     {request: without("sendInitialEvents", "resourceVersionMatch")},
	"no bookmarks":          ofType("BOOKMARK", dropped),
	"bookmarks always":      {request: func(req *http.Request) { always(req, "allowWatchBookmarks", "true") }},
	"no watch timeout":      {request: without("timeoutSeconds")},
	"no propagation policy": {request: without("propagationPolicy")},
	"no field manager":      {request: without("fieldManager")},
	"force always": {request: func(req *http.Request) {
		onApply(req,
			func() { always(req, "force", "true") })
	}},
	"force never": {request: without("force")},
	"no warnings": {response: func(_ *http.Request,
		resp *http.Response) {
		resp.Header.Del("Warning")
	}},
	"JSON only":            {request: func(req *http.Request) { req.Header.Set("Accept", "application/json") }},
	"no tables":            {request: func(req *http.Request) { withoutMediaType(req, "as=Table") }},
	"no metadata":          {request: func(req *http.Request) { withoutMediaType(req, "as=PartialObjectMetadata") }},
	"no YAML":              {request: func(req *http.Request) { withoutMediaType(req, "yaml") }},
	"no protobuf":          {request: func(req *http.Request) { withoutMediaType(req, "protobuf") }},
	"rows without objects": {request: func(req *http.Request) { always(req, "includeObject", "None") }},
	"never compressed":     {request: func(req *http.Request) { req.Header.Set("Accept-Encoding", "identity") }},
	"not indented":         {request: without("pretty")},
	"no authorization": {request: func(req *http.Request) {
		req.Header.Del(
			"Impersonate-User")
		req.Header.Del("Impersonate-Group")
	}},
	"without resourceVersion in bodies": {request: onBody(func(req *http.Request, obj map[string]any) {
		if req.Method != http.MethodPost {
			inMetadata(obj, func(metadata map[string]any) { delete(metadata, "resourceVersion") })
		}
	})},
	"without uid in bodies": {request: onBody(func(req *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) { delete(metadata, "uid") })
	})},
	"bodies of deletions are not read": {request: func(req *http.Request) {
		if req.Method == http.MethodDelete {
			setRequestBody(req, nil)
		}
	}},
	"without preconditions": {request: onBody(func(_ *http.Request,
		obj map[string]any) {
		delete(obj, "preconditions")
	})},
	"labels are not stored": {request: onBody(func(_ *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) {
			if labels, ok := metadata["labels"].(map[string]any); ok {
				maps.DeleteFunc(labels, func(name string, _ any) bool {
					return !strings.HasPrefix(name,
						"conformance.example.com/")
				})
			}
		})
	})},
	"annotations are not stored": {request: onBody(func(_ *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) { delete(metadata, "annotations") })
	})},
	"finalizers are not stored": {request: onBody(func(_ *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) { delete(metadata, "finalizers") })
	})},
	"owners are not stored": {request: onBody(func(_ *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) { delete(metadata, "ownerReferences") })
	})},
	"the content is not stored": {request: onBody(func(_ *http.Request, obj map[string]any) { delete(obj, "spec") })},
	"the status is not stored":  {request: onBody(func(_ *http.Request, obj map[string]any) { delete(obj, "status") })},
	"no uid":                    drops("uid"),
	"no resourceVersion":        drops("resourceVersion"),
	"no creationTimestamp":      drops("creationTimestamp"),
	"no deletionTimestamp":      drops("deletionTimestamp"),
	"no managedFields":          drops("managedFields"),
	"no labels":                 drops("labels"),
	"no finalizers":             drops("finalizers"),
	"no generateName":           drops("generateName"),
	"generations never change":  {response: onObject(generation(func(json.Number) json.Number { return "1" }))},
	"generations count by two": {response: onObject(generation(
		func(n json.Number) json.Number { i, _ := n.Int64(); return json.Number(strconv.FormatInt(2*i, 10)) }))},
	"no kind": {response: onObject(func(_ *http.Request, _ *http.Response,
		obj map[string]any) {
		delete(obj, "kind")
	})},
	"responses without content": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		each(obj, func(o map[string]any) { delete(o, "spec") })
	})},
	"responses without status": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		each(obj, func(o map[string]any) { delete(o, "status") })
	})},
	"lists in reverse": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		if items, ok := obj["items"].([]any); ok {
			slices.Reverse(items)
		}
	})},
	"empty lists are null": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		if items, ok := obj["items"].([]any); ok && len(items) == 0 {
			obj["items"] = nil
		}
	})},
	"lists lose the last": {response: onObject(func(req *http.Request, _ *http.Response, obj map[string]any) {
		if items, ok := obj["items"].([]any); ok && len(items) > 0 && req.URL.Path != "/apis" {
			obj["items"] = items[:len(items)-1]
		}
	})},
	"the subresource is the object": {request: func(req *http.Request) {
		for _, subresource := range []string{"/status", "/scale", "/calibrate", "/log"} {
			req.URL.Path = strings.TrimSuffix(req.URL.Path, subresource)
		}
	}},
	"the object is the subresource": {request: func(req *http.Request) {
		if req.Method == http.MethodPatch || req.Method == http.MethodPut {
			req.URL.Path = strings.TrimSuffix(req.URL.Path, "/status") + "/status"
		}
	}},
	"writes have no effect": {instead: func(req *http.Request, next http.RoundTripper) *http.Response {
		if req.Method != http.MethodPut && req.Method != http.MethodPatch {
			return nil
		}
		read := req.Clone(req.Context())
		read.Method, read.Body, read.ContentLength, read.GetBody = http.MethodGet, nil, 0, nil
		read.URL.RawQuery = ""
		resp, err := next.RoundTrip(read)
		if err != nil {
			return nil
		}
		return resp
	}},
	"deletions have no effect": {instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
		if req.Method != http.MethodDelete || req.URL.Query().Get("propagationPolicy") == "Background" &&
			strings.Contains(req.URL.Path, "none") {
			return nil
		}
		return respond(req, 200, []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}},
	"deletions do not wait": {instead: func(req *http.Request, next http.RoundTripper) *http.Response {
		if req.Method != http.MethodDelete || req.URL.Query().Get("dryRun") != "" {
			return nil
		}
		release := req.Clone(req.Context())
		release.Method, release.URL.RawQuery = http.MethodPatch, ""
		release.Header.Set("Content-Type", "application/merge-patch+json")
		setRequestBody(release, []byte(`{"metadata":{"finalizers":null}}`))
		if resp, err := next.RoundTrip(release); err == nil {
			_ = resp.Body.Close()
		}
		return nil
	}},
	"added is modified":   ofType("ADDED", renamed("MODIFIED")),
	"modified is added":   ofType("MODIFIED", renamed("ADDED")),
	"deleted is modified": ofType("DELETED", renamed("MODIFIED")),
	"additions are lost":  ofType("ADDED", dropped),
	"changes are lost":    ofType("MODIFIED", dropped),
	"deletions are lost":  ofType("DELETED", dropped),
	"every second is lost": events(
		func(n int, e map[string]any) []map[string]any { return map[bool][]map[string]any{true: {e}}[n%2 == 0] }),
	"additions are duplicated": ofType("ADDED", func(e map[string]any) []map[string]any { return []map[string]any{e, e} }),
	"bookmarks are plain": ofType("BOOKMARK", func(e map[string]any) []map[string]any {
		inMetadata(e["object"].(map[string]any), func(m map[string]any) { delete(m, "annotations") })
		return []map[string]any{e}
	}),
	"events of another": events(func(_ int, e map[string]any) []map[string]any {
		inMetadata(e["object"].(map[string]any), func(m map[string]any) {
			m["name"],
				m["resourceVersion"] = "another", "1"
		})
		return []map[string]any{e}
	}),
	"watches ignore the resourceVersion": {request: func(req *http.Request) { onWatch(req, without("resourceVersion")) }},
	"watches without initial events": {request: func(req *http.Request) {
		onWatch(req, func(req *http.Request) { always(req, "resourceVersion", "9000000") })
	}},
	"one namespace": {request: func(req *http.Request) {
		req.URL.Path = strings.Replace(req.URL.Path, "/v1/widgets", "/v1/namespaces/default/widgets", 1)
	}},
	"one version": {request: func(req *http.Request) {
		req.URL.Path = strings.Replace(req.URL.Path, "/v1alpha1/", "/v1/", 1)
	}},
	"generated names are equal": {request: onBody(func(req *http.Request, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) {
			if prefix, ok := metadata["generateName"].(string); ok && req.Method == http.MethodPost {
				metadata["name"] = prefix + "fixed"
			}
		})
	})},
	"discovery without singular": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onResources(obj, func(r map[string]any) { r["singularName"] = "" })
	})},
	"discovery without deletecollection": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			onResources(obj, func(r map[string]any) {
				if verbs, ok := r["verbs"].([]any); ok {
					r["verbs"] = slices.DeleteFunc(verbs, func(v any) bool { return v == "deletecollection" })
				}
			})
		})},
	"discovery with another short name": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			onResources(obj, func(r map[string]any) { r["shortNames"] = []any{"x"} })
		})},
	"discovery with another subresource": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			onResources(obj, func(r map[string]any) {
				if r["name"] == "widgets/status" {
					r["name"] = "widgets/state"
				}
			})
		})},
	"discovery with one short name for all": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			if obj["kind"] == "APIResourceList" {
				for _, r := range obj["resources"].([]any) {
					r.(map[string]any)["shortNames"] = []any{"x"}
				}
			}
		})},
	"a deletion of nothing is an error": rejectsQuery(func(req *http.Request) bool {
		return req.Method == http.MethodDelete && req.URL.Query().Has("labelSelector") && !req.URL.Query().Has("dryRun")
	}),
	"matches of any version are errors": rejectsQuery(func(req *http.Request) bool {
		return req.URL.Query().Get("resourceVersion") == "0" && req.URL.Query().Has("resourceVersionMatch")
	}),
	"updates require a resourceVersion": {instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
		data := content(&req.Body)
		setRequestBody(req, data)
		if req.Method != http.MethodPut || bytes.Contains(data, []byte(`"resourceVersion"`)) {
			return nil
		}
		return respond(req, 409, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"no","code":409}`))
	}},
	"unknown parameters are errors": rejectsQuery(func(req *http.Request) bool {
		return req.URL.Query().Has("noSuchParameter")
	}),
	"discovery without preferred version": {response: onObject(
		func(req *http.Request, _ *http.Response, obj map[string]any) {
			if req.URL.Path == "/apis" {
				groups, _ := obj["groups"].([]any)
				for _, g := range groups {
					g.(map[string]any)["preferredVersion"] = map[string]any{"groupVersion": "x/y", "version": "y"}
				}
			}
		})},
	"OpenAPI without fields": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onSchemas(obj, func(schema map[string]any) { delete(schema["properties"].(map[string]any), "spec") })
	})},
	"OpenAPI with a reference to nothing": {response: onObject(
		func(_ *http.Request, _ *http.Response, obj map[string]any) {
			onSchemas(obj, func(schema map[string]any) {
				schema["properties"].(map[string]any)["lost"] = map[string]any{"$ref": "#/components/schemas/lost"}
			})
		})},
	"OpenAPI with internal kinds": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onSchemas(obj, func(schema map[string]any) {
			kinds := schema["x-kubernetes-group-version-kind"].([]any)
			schema["x-kubernetes-group-version-kind"] = append(kinds,
				map[string]any{"group": "workshop.example.com", "version": "__internal", "kind": "Widget"})
		})
	})},
	"tables without a token": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		if obj["kind"] == "Table" {
			inMetadata(obj, func(metadata map[string]any) { delete(metadata, "continue") })
		}
	})},
	"discovery waits while many watch": {fresh: func() fault {
		var watches atomic.Int64
		return fault{instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
			if req.URL.Query().Get("watch") == "true" {
				watches.Add(1)
			} else if req.URL.Path == "/apis" && watches.Load() > 100 {
				select {
				case <-req.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}
			return nil
		}}
	}},
	"events are late": events(func(_ int, e map[string]any) []map[string]any {
		<-time.After(1200 * time.Millisecond)
		return []map[string]any{e}
	}),
	"an old version folds fields": {instead: func(req *http.Request, next http.RoundTripper) *http.Response {
		if req.Method != http.MethodPatch || !strings.Contains(req.URL.Path, "/v1alpha1/") {
			return nil
		}
		drop := req.Clone(req.Context())
		drop.Header.Set("Content-Type", "application/merge-patch+json")
		setRequestBody(drop, []byte(`{"metadata":{"annotations":{"materials.workshop.example.com/frame":null}}}`))
		if resp, err := next.RoundTrip(drop); err == nil {
			_ = resp.Body.Close()
		}
		return nil
	}},
	"OpenAPI without descriptions": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onSchemas(obj, func(schema map[string]any) { delete(schema, "description") })
	})},
	"OpenAPI without kinds": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onSchemas(obj, func(schema map[string]any) { delete(schema, "x-kubernetes-group-version-kind") })
	})},
	"OpenAPI without paths": {response: onObject(func(req *http.Request, _ *http.Response, obj map[string]any) {
		if strings.HasPrefix(req.URL.Path, "/openapi/v3/") {
			obj["paths"] = map[string]any{}
		}
	})},
	"OpenAPI without metadata": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		onSchemas(obj, func(schema map[string]any) {
			schema["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
		})
	})},
	"OpenAPI of atomic lists": {response: onObject(func(_ *http.Request, _ *http.Response, obj map[string]any) {
		components, _ := obj["components"].(map[string]any)
		schemas, _ := components["schemas"].(map[string]any)
		for _, s := range schemas {
			properties, _ := s.(map[string]any)["properties"].(map[string]any)
			if conditions, ok := properties["conditions"].(map[string]any); ok {
				conditions["x-kubernetes-list-type"] = "atomic"
			}
		}
	})},
	"OpenAPI v2 of nothing": {response: onObject(func(req *http.Request, _ *http.Response, obj map[string]any) {
		if req.URL.Path == "/openapi/v2" {
			obj["definitions"] = map[string]any{}
		}
	})},
	"another content type": {response: func(_ *http.Request,
		resp *http.Response) {
		resp.Header.Set("Content-Type", "text/plain")
	}},
	"no admission": {everywhere: true, instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
		if req.Method != http.MethodPost || !strings.HasPrefix(req.URL.Path, "/apis/admissionregistration.k8s.io/") {
			return nil
		}
		return respond(req, http.StatusCreated, content(&req.Body))
	}},
	"webhooks fail closed always": onWebhook("failurePolicy", "Fail"),
	"webhooks fail open always":   onWebhook("failurePolicy", "Ignore"),
	"webhooks see one version":    onWebhook("matchPolicy", "Exact"),
	"webhooks are called for the object": {everywhere: true,
		request: onBody(func(req *http.Request, obj map[string]any) {
			onWebhooks(req, obj, func(hook map[string]any) {
				rule := hook["rules"].([]any)[0].(map[string]any)
				rule["resources"] = append(rule["resources"].([]any), "widgets")
			})
		})},
	"no health": rejectsQuery(func(req *http.Request) bool {
		return req.URL.Path == "/livez" ||
			req.URL.Path == "/readyz"
	}),
	"no request metrics": {response: onMetrics(func(_ int64, line string) string {
		return map[bool]string{true: "# " + line, false: line}[strings.HasPrefix(line, "apiserver_")]
	})},
	"everything leaks": {fresh: func() fault {
		return fault{response: onMetrics(func(n int64, line string) string {
			for _, name := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes",
				"apiserver_longrunning_requests"} {
				if n > 1 && strings.HasPrefix(line, "# TYPE "+name+" ") {
					return line + "\n" + name +
						`{group="workshop.example.com",version="v1",resource="widgets",verb="WATCH",leaked="yes"} 1e12`
				}
			}
			return line
		})}
	}},
	"other audit IDs": {response: func(_ *http.Request, resp *http.Response) {
		resp.Header.Set("Audit-Id", "another")
	}},
	"old events are wrong": events(func(_ int, event map[string]any) []map[string]any {
		switch event["type"] {
		case "ERROR":
			event["object"] = map[string]any{"kind": "Status", "code": 500, "reason": "InternalError"}
		case "ADDED": // a server that stores all objects
			event["type"] = "MODIFIED"
		}
		return []map[string]any{event}
	}),
	"tokens of all namespaces": {request: func(req *http.Request) {
		if req.URL.Query().Get("continue") != "" {
			req.URL.Path = "/apis/workshop.example.com/v1/widgets"
		}
	}},
	"another User-Agent": {request: func(req *http.Request) { req.Header.Set("User-Agent", "proxy/v1") }},
	"outdated reads": {request: func(req *http.Request) {
		if req.Method == http.MethodGet && req.URL.Query().Get("watch") == "" {
			stale(req)
		}
	}},
}

// onWebhooks changes the webhooks of a configuration.
func onWebhooks(req *http.Request, obj map[string]any, change func(map[string]any)) {
	if hooks, ok := obj["webhooks"].([]any); ok && strings.Contains(req.URL.Path, "webhookconfigurations") {
		for _, hook := range hooks {
			change(hook.(map[string]any))
		}
	}
}

func onWebhook(field, value string) fault {
	return fault{everywhere: true, request: onBody(func(req *http.Request, obj map[string]any) {
		onWebhooks(req, obj, func(hook map[string]any) { hook[field] = value })
	})}
}

// onMetrics changes the lines of metrics; n is the number of the response, from 1.
func onMetrics(change func(n int64, line string) string) func(*http.Request, *http.Response) {
	var responses atomic.Int64
	return func(req *http.Request, resp *http.Response) {
		if req.URL.Path != "/metrics" {
			return
		}
		n, out := responses.Add(1), []string{}
		for line := range strings.Lines(string(content(&resp.Body))) {
			out = append(out, change(n, strings.TrimSuffix(line, "\n")))
		}
		data := []byte(strings.Join(out, "\n") + "\n")
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		resp.Header.Del("Content-Length")
	}
}

// rejectsQuery responds with 400 to some requests.
func rejectsQuery(some func(*http.Request) bool) fault {
	return fault{instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
		if !some(req) {
			return nil
		}
		return respond(req, 400, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","message":"no","code":400}`))
	}}
}

func always(req *http.Request, name, value string) {
	query := req.URL.Query()
	query.Set(name, value)
	req.URL.RawQuery = query.Encode()
}

func onApply(req *http.Request, do func()) {
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
		do()
	}
}

func onWatch(req *http.Request, do func(*http.Request)) {
	if req.URL.Query().Get("watch") == "true" {
		do(req)
	}
}

func withoutMediaType(req *http.Request, part string) {
	if strings.Contains(req.Header.Get("Accept"), part) {
		req.Header.Set("Accept", "application/json")
	}
}

// stale makes a read accept data of any age from the cache.
func stale(req *http.Request) {
	if query := req.URL.Query(); query.Get("limit") == "" {
		req.URL.RawQuery = url.Values{"labelSelector": query["labelSelector"], "resourceVersion": {"0"}}.Encode()
	}
}

func generation(change func(json.Number) json.Number) func(*http.Request, *http.Response, map[string]any) {
	return func(_ *http.Request, _ *http.Response, obj map[string]any) {
		inMetadata(obj, func(metadata map[string]any) {
			if n, ok := metadata["generation"].(json.Number); ok {
				metadata["generation"] = change(n)
			}
		})
	}
}

func onResources(obj map[string]any, change func(map[string]any)) {
	if obj["kind"] == "APIResourceList" {
		for _, r := range obj["resources"].([]any) {
			if resource := r.(map[string]any); strings.HasPrefix(resource["name"].(string), "widgets") {
				change(resource)
			}
		}
	}
}

// onSchemas changes the schemas of Widget in an OpenAPI v3 document.
func onSchemas(obj map[string]any, change func(map[string]any)) {
	components, _ := obj["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, s := range schemas {
		if strings.HasSuffix(name, ".Widget") {
			change(s.(map[string]any))
		}
	}
}
