// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// unread fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.ErrUnexpectedEOF
}

// TestS30YAML checks that YAML is read only where it will be decoded, up to its limit, and without
// aliases.
func TestS30YAML(t *testing.T) {
	const apply = "application/apply-patch+yaml"
	write := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: "workshop.example.com",
		APIVersion: "v1", Resource: "gadgets"}
	of := func(verb string) *genericapirequest.RequestInfo {
		info := *write
		info.Verb = verb
		return &info
	}
	bomb := "{" + strings.Repeat("a,", 1000) + "&x b: *x}"
	text := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-8) + `"}` }
	for _, tc := range []struct {
		name, contentType, body string // an empty body must not be read
		info                    *genericapirequest.RequestInfo
		want                    int
		message                 string
	}{
		{"YAML", "application/yaml", "a: b\n", write, http.StatusTeapot, ""},
		{"aliases", "application/yaml", bomb, write, http.StatusBadRequest, "line 1: YAML aliases are not accepted"},
		{"aliases, upper case", "APPLICATION/YAML", bomb, write, http.StatusBadRequest, "YAML aliases"},
		{"aliases, applied", apply, bomb, of("patch"), http.StatusBadRequest, "YAML aliases"},
		{"aliases, deleted", "application/yaml", bomb, of("delete"), http.StatusBadRequest, "YAML aliases"},
		{"aliases, deleted collection", "application/yaml", bomb, of("deletecollection"), http.StatusBadRequest,
			"YAML aliases"},
		{"aliases, updated", "application/yaml", bomb, of("update"), http.StatusBadRequest, "YAML aliases"},
		{"a deep alias", "application/yaml", "a: &x 1\nb:\n- c: {d: *x}\n", write, http.StatusBadRequest,
			"line 3: YAML aliases"},
		{"both signs and no alias", "application/yaml", "a: R&D *new*\n", write, http.StatusTeapot, ""},
		{"both signs, and not YAML", "application/yaml", "a: &x *\n\t- [", write, http.StatusBadRequest,
			"parse YAML: "},
		{"both signs in JSON", apply, `{"a":"&x","b":"*x"}`, of("patch"), http.StatusTeapot, ""},
		{"768 KiB", apply, text(maxYAML), of("patch"), http.StatusTeapot, ""},
		{"768 KiB and a byte", apply, text(maxYAML + 1), of("patch"), http.StatusRequestEntityTooLarge,
			"limit for YAML, and for server-side apply, is 786432 bytes"},
		{"512 KiB that are not JSON", apply, text(maxOnlyYAML-2) + "#\n", of("patch"), http.StatusTeapot, ""},
		{"more than 512 KiB that are not JSON", apply, text(maxOnlyYAML-1) + "#\n", of("patch"),
			http.StatusRequestEntityTooLarge, "limit for YAML that is not JSON is 524288 bytes"},
		{"a long list", apply, "a:\n" + strings.Repeat("- a\n", maxList+1), of("patch"),
			http.StatusRequestEntityTooLarge, "the lists and objects of the body are too long"},
		{"a list in a line", apply, "a: [" + strings.Repeat("a,", maxList-1) + "a]", of("patch"),
			http.StatusTeapot, ""},
		{"a text with commas", apply, "a: " + strings.Repeat("a,", maxList), of("patch"), http.StatusTeapot, ""},
		{"JSON", "application/json", "", write, http.StatusTeapot, ""},
		{"a read", "application/yaml", "", of("get"), http.StatusTeapot, ""},
		{"a list", "application/yaml", "", of("list"), http.StatusTeapot, ""},
		{"a watch", "application/yaml", "", of("watch"), http.StatusTeapot, ""},
		{"not a resource", "application/yaml", "", &genericapirequest.RequestInfo{Verb: "post", Path: "/healthz"},
			http.StatusTeapot, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handler := WithYAMLLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if tc.body != "" {
					if body, err := io.ReadAll(req.Body); string(body) != tc.body || err != nil {
						t.Errorf("the next handler reads %.100q and %v, want the whole body", body, err)
					}
				}
				w.WriteHeader(http.StatusTeapot)
			}), testCodecs)
			for _, length := range []int64{int64(len(tc.body)), -1} {
				var body io.Reader = unread{t}
				if tc.body != "" {
					body = strings.NewReader(tc.body)
				}
				req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), tc.info),
					http.MethodPost, "/", body)
				req.Header.Set("Content-Type", tc.contentType)
				req.ContentLength = length
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, req)
				if rec.Code != tc.want || !strings.Contains(rec.Body.String(), tc.message) {
					t.Errorf("length %d: got %d %.300s, want %d and %q", length, rec.Code, rec.Body,
						tc.want, tc.message)
				}
			}
		})
	}
}

// TestS30YAMLResponses checks that a response in YAML has the content of its JSON, up to a size,
// and that the library cannot choose YAML.
func TestS30YAMLResponses(t *testing.T) {
	for name, tc := range map[string]struct {
		accept   string
		verb     string
		size     int
		code     int
		want     string
		received string // Accept header that the handler receives
	}{
		"short": {"application/yaml", "list", 10, http.StatusOK, "a: xxxxxxxxxx\n", "application/json;q=1"},
		"as a table": {"application/yaml;as=Table", "list", 1, http.StatusOK, "a: x\n",
			"application/json;q=1;as=Table"},
		"too long": {"application/yaml", "list", maxYAMLResponse, http.StatusNotAcceptable, "too large for YAML",
			"application/json;q=1"},
		"too deep": {"application/yaml", "get", -101, http.StatusNotAcceptable, "more than 100 levels deep",
			"application/json;q=1"},
		"JSON": {"application/json", "list", maxYAMLResponse, http.StatusOK, `{"a":"xx`, "application/json"},
		"JSON by rank": {"application/yaml;q=0.5,application/json", "list", 1, http.StatusOK, `{"a":"x"}`,
			"application/json;q=1,application/json;q=0.5"},
		"one, not more": {"application/yaml", "get", 1, http.StatusOK, "a: x\n", "application/json;q=1"},
		"one, too long": {"application/yaml", "get", maxYAMLResponse, http.StatusNotAcceptable, "too large for YAML",
			"application/json;q=1"},
		"a write": {"application/yaml", "update", 1, http.StatusCreated, "a: x\n", "application/json;q=1"},
		"long writes": {"application/yaml", "deletecollection", maxYAMLResponse, http.StatusCreated, `{"a":"xx`,
			"application/json;q=1"},
		// The library uses the second type if the resource does not support the first.
		"a form that nothing has": {"application/json;as=X, application/yaml", "list", maxYAMLResponse, http.StatusOK,
			`{"a":"xx`, "application/json;q=1;as=X,application/json;q=1"},
		"a blank": {"application/ yaml", "list", maxYAMLResponse, http.StatusNotAcceptable,
			"too large for YAML", "application/json;q=1"},
	} {
		t.Run(name, func(t *testing.T) {
			received := ""
			handler := testMemory(t).WithYAMLResponseLimit(
				http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					received = req.Header.Get("Accept")
					w.Header().Set("Content-Type", "application/json")
					if writes.Has(tc.verb) {
						w.WriteHeader(http.StatusCreated)
					}
					if tc.size < 0 {
						_, _ = io.WriteString(w, strings.Repeat("[", -tc.size)+strings.Repeat("]", -tc.size))
						return
					}
					for _, part := range []string{`{"a":"`, strings.Repeat("x", tc.size), `"}`} {
						_, _ = io.WriteString(w, part)
					}
				}), func(*genericapirequest.RequestInfo) bool { return false })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
				IsResourceRequest: true, Verb: tc.verb}), http.MethodGet, "/", nil)
			req.Header.Set("Accept", tc.accept)
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, req)
			if whole := "x\"}"; strings.HasPrefix(tc.want, "{") && !strings.HasSuffix(rec.Body.String(), whole) {
				t.Errorf("got a response that ends with %q, want %q", rec.Body.String()[rec.Body.Len()-4:], whole)
			}
			if rec.Code != tc.code || !strings.Contains(rec.Body.String(), tc.want) || received != tc.received {
				t.Errorf("got %d %.100s, the library got a request for %q; want %d %s, %q", rec.Code, rec.Body, received,
					tc.code, tc.want, tc.received)
			}
		})
	}
}

// TestResponsesWithoutYAML checks that the client receives a response that is not JSON unchanged,
// and also the JSON of a write that YAML cannot represent.
func TestResponsesWithoutYAML(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, contentType, body string
		code                    int
		want                    string
	}{
		"text":           {"get", "text/plain", "a: b: c", http.StatusAccepted, "a: b: c"},
		"without a type": {"create", "", "a: b: c", http.StatusAccepted, "a: b: c"},
		"nothing":        {"create", "", "", http.StatusAccepted, ""},
		"a character, written": {"create", "application/json", "{\"a\":\"\x7f\"}", http.StatusAccepted,
			"{\"a\":\"\x7f\"}"},
		"a character, read": {"get", "application/json", "{\"a\":\"\x7f\"}", http.StatusInternalServerError,
			"control characters are not allowed"},
		"JSON with more in types": {"create", "application/json; charset=utf-8", `{"a":"b"}`,
			http.StatusAccepted, "a: b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			handler := testMemory(t).WithYAMLResponseLimit(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if tc.contentType != "" {
						w.Header().Set("Content-Type", tc.contentType)
					}
					w.WriteHeader(http.StatusAccepted)
					if tc.body != "" {
						_, _ = io.WriteString(w, tc.body)
					}
				}), func(*genericapirequest.RequestInfo) bool { return false })
			info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: tc.verb}
			req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), info),
				http.MethodGet, "/", nil)
			req.Header.Set("Accept", "application/yaml")
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, req)
			if body := rec.Body.String(); rec.Code != tc.code || !strings.Contains(body, tc.want) ||
				tc.code == http.StatusAccepted && body != tc.want {
				t.Errorf("got %d %q, want %d %q", rec.Code, body, tc.code, tc.want)
			}
		})
	}
}

// TestJSONAsYAML checks that JSON that is sent as YAML is decoded as JSON, which takes a tenth of
// the time, except in a patch, whose type determines the operation.
func TestJSONAsYAML(t *testing.T) {
	for _, tc := range []struct{ verb, contentType, body, want string }{
		{"create", "application/yaml", `{"a":1}`, "application/json"},
		{"create", "application/yaml", "a: 1", "application/yaml"},
		{"patch", "application/apply-patch+yaml", `{"a":1}`, "application/apply-patch+yaml"},
		{"create", "application/json", `{"a":1}`, "application/json"},
		{"create", "text/x-yaml", `{"a":1}`, "text/x-yaml"},
	} {
		req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: tc.verb}), http.MethodPost, "/",
			strings.NewReader(tc.body))
		req.Header.Set("Content-Type", tc.contentType)
		WithYAMLLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if got := req.Header.Get("Content-Type"); got != tc.want {
				t.Errorf("%s of %s as %s: decoded as %s, want %s", tc.verb, tc.body, tc.contentType, got, tc.want)
			}
		}), testCodecs).ServeHTTP(httptest.NewRecorder(), req)
	}
}
