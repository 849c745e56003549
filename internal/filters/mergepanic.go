// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"example.com/extension-apiserver/internal/patch"
)

// serveMerge lets the handler merge a patch into the object, and responds with 422 if the library
// cannot merge it: if it panics, or if it returns an error that no storage has replaced, as in dry
// runs.
func serveMerge(handler http.Handler, w http.ResponseWriter, req *http.Request, kind schema.GroupKind,
	serializer runtime.NegotiatedSerializer) {
	held := &heldError{ResponseWriter: w}
	defer func() {
		info, _ := genericapirequest.RequestInfoFrom(req.Context()) // a patch request has it
		reason := recover()
		message := held.message(serializer)
		switch {
		case mergePanic.MatchString(fmt.Sprint(reason)): // the reason includes the stack
			responsewriters.RespondWithError(w, req, patch.Unmerged("the merge failed", kind, info.Name), serializer)
		case reason != nil:
			panic(reason)
		case patch.Mismatch(message):
			responsewriters.RespondWithError(w, req, patch.Unmatched(message, kind, info.Name), serializer)
		case held.status != 0:
			held.send()
		}
	}()
	uncompressed := req.WithContext(req.Context())
	uncompressed.Header = req.Header.Clone()
	uncompressed.Header.Del("Accept-Encoding") // held.message reads the response
	handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), uncompressed)
}

// mergePanic matches the stack of a panic in the libraries that merge patches. The library for
// JSON patches panics when it compares a null in a list.
var mergePanic = regexp.MustCompile(`/util/strategicpatch\.|\(\*jsonPatcher\)\.applyJSPatch\(`)

// heldError holds back a response with status 500.
type heldError struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (h *heldError) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *heldError) WriteHeader(status int) {
	if status == http.StatusInternalServerError {
		h.status = status
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

func (h *heldError) Write(p []byte) (int, error) {
	if h.status != 0 {
		return h.body.Write(p)
	}
	return h.ResponseWriter.Write(p)
}

// message returns the message of the Status in the held response, or "" if there is none.
func (h *heldError) message(serializer runtime.NegotiatedSerializer) string {
	mediaType, _, _ := strings.Cut(h.Header().Get("Content-Type"), ";")
	info, ok := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), mediaType)
	if h.status == 0 || !ok {
		return ""
	}
	object, _, err := info.Serializer.Decode(h.body.Bytes(), nil, nil)
	status, ok := object.(*metav1.Status)
	if err != nil || !ok {
		return ""
	}
	return status.Message
}

func (h *heldError) send() {
	h.ResponseWriter.WriteHeader(h.status)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // an error means that the connection is closed
}
