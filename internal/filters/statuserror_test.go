// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// TestStatusErrors checks that the error of an authorizer becomes the response, as a Status, and
// that other errors get the library's response.
func TestStatusErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal *apierrors.StatusError
		handler http.HandlerFunc
		code    int
	}{
		"refused": {apierrors.NewTooManyRequests("too many", 1), func(w http.ResponseWriter, req *http.Request) {
			responsewriters.InternalError(w, req, errors.New("full"))
		}, http.StatusTooManyRequests},
		"refused, impersonation check": {apierrors.NewTooManyRequests("too many", 1),
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
			}, http.StatusTooManyRequests},
		"another error": {nil, func(w http.ResponseWriter, req *http.Request) {
			responsewriters.InternalError(w, req, errors.New("full"))
		}, http.StatusInternalServerError},
		"served anyway": {apierrors.NewTooManyRequests("too many", 1),
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusAccepted)
			}, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			WithStatusErrors(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if tc.refusal != nil {
					SetStatusError(req.Context(), tc.refusal)
				}
				tc.handler(w, req)
			}), testCodecs).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if rec.Code != tc.code {
				t.Errorf("got %d, want %d", rec.Code, tc.code)
			}
			if tc.code != http.StatusTooManyRequests {
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(rec.Body.Bytes(), &status); err != nil ||
				status.Reason != metav1.StatusReasonTooManyRequests || rec.Header().Get("Retry-After") == "" {
				t.Errorf("got %s with the headers %v, %v; want a Status and Retry-After", rec.Body, rec.Header(), err)
			}
		})
	}
}
