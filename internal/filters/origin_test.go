// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestRefuseForeignOrigins checks that an upgrade passes if it has no Origin or if each of its
// origins is allowed, and that other requests pass.
func TestRefuseForeignOrigins(t *testing.T) {
	allowed := []string{`^https://console\.example\.com$`, `//localhost(:|$)`}
	upgrade := func(protocol string, origins ...string) http.Header {
		return http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}, "Origin": origins}
	}
	for _, tc := range []struct {
		name    string
		allowed []string
		header  http.Header
		// refused is the rejected origin, or "-" if no origin is rejected.
		refused string
	}{
		{"no Origin", nil, upgrade("websocket"), "-"},
		{"an Origin, none allowed", nil, upgrade("websocket", "https://console.example.com"),
			"https://console.example.com"},
		{"allowed", allowed, upgrade("websocket", "https://console.example.com"), "-"},
		{"allowed by the second pattern", allowed, upgrade("websocket", "http://localhost:8080"), "-"},
		{"another scheme", allowed, upgrade("websocket", "http://console.example.com"), "http://console.example.com"},
		{"another host", allowed, upgrade("websocket", "https://console.example.com.evil.example"),
			"https://console.example.com.evil.example"},
		{"another case", allowed, upgrade("websocket", "https://CONSOLE.example.com"), "https://CONSOLE.example.com"},
		{"the host of the request", allowed, upgrade("websocket", "https://example.com"), "https://example.com"},
		{"null", allowed, upgrade("websocket", "null"), "null"},
		{"null, allowed", []string{"^null$"}, upgrade("websocket", "null"), "-"},
		{"empty", allowed, upgrade("websocket", ""), ""},
		{"empty, then allowed", allowed, upgrade("websocket", "", "https://console.example.com"), ""},
		{"two, the second foreign", allowed, upgrade("websocket", "https://console.example.com", "http://evil.example"),
			"http://evil.example"},
		{"two, both allowed", allowed, upgrade("websocket", "https://console.example.com", "http://localhost"), "-"},
		{"a list in one header", allowed, upgrade("websocket", "https://console.example.com http://evil.example"),
			"https://console.example.com http://evil.example"},
		{"SPDY", allowed, upgrade("SPDY/3.1", "http://evil.example"), "http://evil.example"},
		{"any other protocol", allowed, upgrade("anything", "http://evil.example"), "http://evil.example"},
		{"upper case", allowed, http.Header{"Connection": {"keep-alive, UPGRADE"}, "Upgrade": {"WebSocket"},
			"Origin": {"http://evil.example"}}, "http://evil.example"},
		{"Connection twice", allowed, http.Header{"Connection": {"keep-alive", "upgrade"}, "Upgrade": {"websocket"},
			"Origin": {"http://evil.example"}}, "http://evil.example"},
		{"no upgrade", allowed, http.Header{"Origin": {"http://evil.example"}}, "-"},
		{"Upgrade without Connection", allowed, http.Header{"Upgrade": {"websocket"},
			"Origin": {"http://evil.example"}}, "-"},
		// Some reverse proxies send this with every request.
		{"Connection without Upgrade", allowed, http.Header{"Connection": {"upgrade"},
			"Origin": {"http://evil.example"}}, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			passed := false
			handler := WithOriginCheck(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }),
				tc.allowed, testCodecs)
			req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(),
				&genericapirequest.RequestInfo{
					IsResourceRequest: true, APIGroup: "workshop.example.com", Resource: "gadgets",
					Subresource: "console", Name: "w",
				}), http.MethodGet, "/", nil)
			req.Header = tc.header
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, req)
			if want := tc.refused == "-"; passed != want {
				t.Fatalf("passed: %t, responded %d %s; want it passed: %t", passed, recorder.Code, recorder.Body, want)
			}
			if passed {
				return
			}
			var got metav1.Status
			if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, recorder.Body)
			}
			quoted, err := json.Marshal(tc.refused)
			if err != nil {
				t.Fatal(err)
			}
			if recorder.Code != http.StatusForbidden || got.Reason != metav1.StatusReasonForbidden ||
				!strings.Contains(got.Message, "the origin "+string(quoted)+" is not allowed") ||
				!strings.Contains(got.Message, "--cors-allowed-origins") {
				t.Errorf("responded %d %+v, want 403 Forbidden with the origin and the flag", recorder.Code, got)
			}
			if diff := cmp.Diff(&metav1.StatusDetails{Group: "workshop.example.com", Kind: "gadgets", Name: "w"},
				got.Details); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRefuseForeignOriginsWatch checks that a watch over WebSocket is rejected like any other
// upgrade, because it returns objects. The status is one on which clients fall back to a watch
// over HTTP.
func TestRefuseForeignOriginsWatch(t *testing.T) {
	handler := WithOriginCheck(http.NotFoundHandler(), nil, testCodecs)
	info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "watch", APIGroup: "workshop.example.com",
		Resource: "gadgets"}
	req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), info), http.MethodGet,
		"/apis/workshop.example.com/v1/gadgets?watch=1", nil)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"http://evil.example"}}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, req)
	if recorder.Code != http.StatusServiceUnavailable ||
		!strings.Contains(recorder.Body.String(), "http://evil.example") {
		t.Errorf("responded %d %s, want 503 with the origin", recorder.Code, recorder.Body)
	}
}
