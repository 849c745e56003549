// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestHeaderLimit checks that many values of a field, such as groups, are accepted, that too many
// fields are rejected, and that Range is removed.
func TestHeaderLimit(t *testing.T) {
	for fields, code := range map[int]int{1: http.StatusOK, maxFields: http.StatusOK,
		maxFields + 1: http.StatusRequestHeaderFieldsTooLarge} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		for i := range fields {
			req.Header.Set(fmt.Sprintf("X-%d", i), "")
		}
		for range 1000 {
			req.Header.Add("X-0", "group")
		}
		if fields < maxFields {
			req.Header.Set("Range", "bytes=0-0,0-0")
		}
		rec := httptest.NewRecorder()
		WithHeaderLimit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if got := req.Header.Get("Range"); got != "" {
				t.Errorf("the handler gets the range %s", got)
			}
		}), testCodecs).ServeHTTP(rec, req)
		if rec.Code != code {
			t.Errorf("%d fields: got %d, want %d", fields, rec.Code, code)
		}
	}
}

// TestMediaTypes checks that long media types are rejected.
func TestMediaTypes(t *testing.T) {
	for _, name := range []string{"Accept", "Content-Type"} {
		for size, code := range map[int]int{maxMediaTypes: http.StatusOK,
			maxMediaTypes + 1: http.StatusRequestHeaderFieldsTooLarge} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			req.Header.Set(name, strings.Repeat(",", size))
			rec := httptest.NewRecorder()
			WithHeaderLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), testCodecs).ServeHTTP(rec, req)
			if rec.Code != code {
				t.Errorf("%s of %d bytes: got %d, want %d", name, size, rec.Code, code)
			}
		}
	}
}

// TestSelectors checks that requirements are counted over both selectors, and values of sets
// separately.
func TestSelectors(t *testing.T) {
	many := func(n int, text string) string { return strings.Repeat(text+",", n-1) + text }
	for name, tc := range map[string]struct {
		labels, fields string
		fails          bool
	}{
		"none":                     {},
		"as many labels as may be": {labels: many(maxRequirements, "!a")},
		"too many labels":          {labels: many(maxRequirements+1, "!a"), fails: true},
		"too many sets":            {labels: many(maxRequirements+1, "a in (b,c)"), fails: true},
		"as many values as may be": {labels: "a in (" + many(maxSetValues, "b") + ")"},
		"too many values":          {labels: "a in (" + many(maxSetValues+1, "b") + ")", fails: true},
		"as many fields as may be": {fields: many(maxRequirements, "metadata.name!=(")},
		"too many fields":          {fields: many(maxRequirements+1, "metadata.name!=("), fails: true},
		"too many in both":         {labels: many(60, "!a"), fields: many(60, "metadata.name!=a"), fails: true},
	} {
		query := url.Values{"labelSelector": {tc.labels}, "fieldSelector": {tc.fields}}
		rec := httptest.NewRecorder()
		WithHeaderLimit(http.NotFoundHandler(), testCodecs).ServeHTTP(rec,
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query.Encode(), nil))
		want := http.StatusNotFound
		if tc.fails {
			want = http.StatusBadRequest
		}
		if rec.Code != want {
			t.Errorf("%s: got %d and %s, want %d", name, rec.Code, rec.Body, want)
		}
	}
}
