// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHeaderLimit: many values of a field, such as groups, are accepted; many fields are not. Range is removed.
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
		})).ServeHTTP(rec, req)
		if rec.Code != code {
			t.Errorf("%d fields: got %d, want %d", fields, rec.Code, code)
		}
	}
}
