// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestS30Aliases: a YAML is refused for what it is with its aliases written out, and for nothing else; it arrives as it was sent.
func TestS30Aliases(t *testing.T) {
	const limit = 1000
	text := strings.Repeat("x", 100)
	for _, tc := range []struct {
		name, contentType, body string
		want                    int
	}{
		{"no alias", "application/yaml", "a: '& * " + text + "'", 200},
		{"short", "application/yaml", "a: &a " + text + "\nb: [*a, *a, *a]", 200},
		{"just not too long", "application/yaml", "a: &a " + text + "\nb: [*a, *a, *a, *a, *a, *a, *a, *a]", 200},
		{"too long", "application/yaml", "a: &a " + text + "\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]", 413},
		{"too long, applied", "application/apply-patch+yaml", "a: &a " + text + "\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]", 413},
		{"too long, with a type in capitals", "Application/YAML; charset=utf-8", "a: &a " + text + "\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]", 413},
		{"too long, as a key", "application/yaml", "? &a " + text + "\n: [{*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}, {*a : 1}]", 413},
		{"too long, merged", "application/yaml", "a: &a {b: " + text + "}\nc: [" + strings.TrimSuffix(strings.Repeat("{<<: *a},", 9), ",") + "]", 413},
		{"too long by levels", "application/yaml", "a: &a [" + text + ", " + text + "]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", 413},
		{"more values than the library takes", "application/yaml", levels(12), 200},
		{"in itself", "application/yaml", "a: &a [*a]", 200},
		{"JSON", "application/yaml", `{"a":"&a","b":"*a"}`, 200},
		{"another type", "application/json", "a: &a " + text + "\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]", 200},
		{"longer than a body may be", "application/yaml", "a: &a " + strings.Repeat("x", 2*limit) + "\nb: *a", 200},
		{"no YAML", "application/yaml", "a: [&a *a", 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			handler := limitAliases(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil || req.Body.Close() != nil {
					t.Errorf("read the body: %v", err)
				}
				got = string(body)
			}), Codecs, limit)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tc.body))
			req.Header.Set("Content-Type", tc.contentType)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, req)
			if recorder.Code != tc.want {
				t.Errorf("got %d %s, want %d", recorder.Code, recorder.Body, tc.want)
			}
			if tc.want == http.StatusOK && got != tc.body {
				t.Errorf("the body arrived as %.200q, want %.200q", got, tc.body)
			}
		})
	}
}

// levels is a YAML of n levels, each of which names the one below nine times.
func levels(n int) string {
	body := "- &a0 [x]\n"
	for i := 1; i < n; i++ {
		below, this := string(rune('a'+i-1)), string(rune('a'+i))
		if i == 1 {
			below = "a0"
		}
		body += "- &" + this + " [" + strings.TrimSuffix(strings.Repeat("*"+below+", ", 9), ", ") + "]\n"
	}
	return body
}
