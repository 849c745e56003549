// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestPatchPanics checks that a panic of the library's merge gets 422, and that any other panic
// stays a panic.
func TestPatchPanics(t *testing.T) {
	gv := schema.GroupVersion{Group: "workshop.example.com", Version: "v1"}
	p := &Patches{kinds: map[patched]kind{{gv, "gadgets"}: {gv.WithKind("Gadget"),
		reflect.TypeFor[metav1.PartialObjectMetadata]()}}}
	send := func(reason any) (code int, panicked any) {
		defer func() { panicked = recover() }()
		info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "patch", APIGroup: gv.Group,
			APIVersion: gv.Version, Resource: "gadgets"}
		req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(t.Context(), info), http.MethodPatch,
			"/", strings.NewReader("{}"))
		req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
		rec := httptest.NewRecorder()
		p.WithCheck(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(reason) }), 100,
			testCodecs).ServeHTTP(rec, req)
		return rec.Code, nil
	}
	if code, panicked := send(
		"nil\nk8s.io/apimachinery/pkg/util/strategicpatch.mergeSlice(...)"); code != http.StatusUnprocessableEntity ||
		panicked != nil {
		t.Errorf("the merge panics: got %d and the panic %v, want 422", code, panicked)
	}
	if code, panicked := send("nil\nk8s.io/apiserver/pkg/endpoints/handlers.(*jsonPatcher).applyJSPatch(0x1)"); code != http.StatusUnprocessableEntity || panicked != nil {
		t.Errorf("a JSON patch panics: got %d and the panic %v, want 422", code, panicked)
	}
	if _, panicked := send("another"); panicked != "another" {
		t.Errorf("something else panics: got %v, want the panic", panicked)
	}
}

// TestLongMergeErrors checks that a merge error that is long enough for the library to compress it
// also gets 422.
func TestLongMergeErrors(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	failing := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := errors.New("map: map[a:" + strings.Repeat("x", 200<<10) + "] does not contain declared merge key: name")
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
	})
	req := httptest.NewRequest(http.MethodPatch, "/", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	req = req.WithContext(genericapirequest.WithRequestInfo(req.Context(),
		&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "patch", Name: "w"}))
	w := httptest.NewRecorder()
	serveMerge(failing, w, req, schema.GroupKind{Kind: "Widget"}, codecs)
	if body := w.Body.String(); w.Code != http.StatusUnprocessableEntity || len(body) > 8<<10 ||
		!strings.Contains(body, "cannot be merged into the object: map: map[a:xxx") {
		t.Errorf("got %d and %d bytes, want 422 and the beginning of the error: %.500s", w.Code, len(body), body)
	}
}

// TestPatches checks that bodies are read for the patches that are checked, up to the limit, and
// that they reach the handler complete.
func TestPatches(t *testing.T) {
	const limit = 100
	gv := schema.GroupVersion{Group: "workshop.example.com", Version: "v1"}
	p := &Patches{kinds: map[patched]kind{{gv, "gadgets/status"}: {gv.WithKind("Gadget"),
		reflect.TypeFor[metav1.PartialObjectMetadata]()}}}
	handler := p.WithCheck(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
	}), limit, testCodecs)
	const bad = `{"metadata":{"generation":"x"}}`
	for name, tc := range map[string]struct {
		patchType         types.PatchType
		verb, subresource string
		body              string
		want              int
	}{
		"fits": {types.StrategicMergePatchType, "patch", "status", `{"metadata":{"generation":1}}`,
			http.StatusTeapot},
		"does not fit": {types.StrategicMergePatchType, "patch", "status", bad, http.StatusUnprocessableEntity},
		"with a parameter": {types.StrategicMergePatchType + "; charset=utf-8", "patch", "status", bad,
			http.StatusUnprocessableEntity},
		"applied": {types.ApplyYAMLPatchType, "patch", "status",
			`{"apiVersion":"workshop.example.com/v1","kind":"Gadget","metadata":{"generation":"x"}}`,
			http.StatusUnprocessableEntity},
		"applied, not JSON": {types.ApplyYAMLPatchType, "patch", "status",
			"{apiVersion: workshop.example.com/v1, kind: Gadget, metadata: {generation: x}}",
			http.StatusUnprocessableEntity},
		"another kind": {types.ApplyYAMLPatchType, "patch", "status",
			`{"kind":"Widget","metadata":{"generation":"x"}}`, http.StatusTeapot},
		"does not decode": {types.StrategicMergePatchType, "patch", "status", "{", http.StatusTeapot},
		"as long as the limit": {types.StrategicMergePatchType, "patch", "status", bad +
			strings.Repeat(" ", limit-len(bad)), http.StatusUnprocessableEntity},
		"too long": {types.StrategicMergePatchType, "patch", "status", bad + strings.Repeat(" ", limit),
			http.StatusTeapot},
		"a merge patch":    {types.MergePatchType, "patch", "status", bad, http.StatusTeapot},
		"no patch":         {types.StrategicMergePatchType, "update", "status", bad, http.StatusTeapot},
		"another resource": {types.StrategicMergePatchType, "patch", "", bad, http.StatusTeapot},
	} {
		t.Run(name, func(t *testing.T) {
			for _, length := range []int64{int64(len(tc.body)), -1} {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: tc.verb, APIGroup: gv.Group,
					APIVersion: gv.Version, Resource: "gadgets", Subresource: tc.subresource}
				req := httptest.NewRequestWithContext(genericapirequest.WithRequestInfo(ctx, info), http.MethodPatch,
					"/", strings.NewReader(tc.body))
				req.Header.Set("Content-Type", string(tc.patchType))
				req.ContentLength = length
				rec := httptest.NewRecorder()
				handler.ServeHTTP(rec, req)
				if rec.Code != tc.want || tc.want == http.StatusTeapot && rec.Body.String() != tc.body {
					t.Errorf("length %d: got %d %.300s, want %d", length, rec.Code, rec.Body, tc.want)
				}
			}
		})
	}
}
