// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// resourcePaths are the paths of the objects that negotiation is tested with. A client may rely on our server doing what
// kube-apiserver does with its own kinds.
func resourcePaths(namespace string) map[string]string {
	return map[string]string{
		"Engine":    "/apis/" + engineCase.resource.GroupVersion().String() + "/namespaces/" + namespace + "/engines",
		"ConfigMap": "/api/v1/namespaces/" + namespace + "/configmaps",
	}
}

// TestEngineAccept: of several forms that a client can read it gets the one that it likes best, if the server has it.
func TestEngineAccept(t *testing.T) {
	const json, yaml, protobuf = runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf
	server := aggregator(t, shared)
	for kind, path := range resourcePaths(newNamespace(t, shared)) {
		for _, tc := range []struct{ accept, want string }{
			{"", json},
			{"*/*", json},
			{"application/*;q=0.5, " + yaml, yaml},
			{yaml, yaml},
			{protobuf + ", " + json, protobuf},
			{protobuf + "," + json + ";q=0.9", protobuf},
			{protobuf + ";q=0.5, " + json + ";q=0.9", json},
			{yaml + ";q=0.2, " + protobuf + ";q=0.1", yaml},
			{"application/unknown, " + json, json},
			{"text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", json},
			// kubectl get asks so, and takes the object itself of a server that has no tables.
			{json + ";as=Table;v=v1;g=meta.k8s.io," + json + ";as=Table;v=v1beta1;g=meta.k8s.io," + json, json},
			// A form that tables do not have is passed over.
			{protobuf + ";as=Table;v=v1;g=meta.k8s.io," + json, json},
		} {
			t.Run(kind+" "+tc.accept, func(t *testing.T) {
				a := server.do(t, http.MethodGet, path, http.Header{"Accept": {tc.accept}}, nil)
				if got := a.header.Get("Content-Type"); a.status != http.StatusOK || got != tc.want {
					t.Errorf("got %d %s, want 200 %s", a.status, got, tc.want)
				}
			})
		}
	}
}

// TestEngineRefusedForms: a form that the server cannot read or write gets a Status that a client can read and a person
// can act on.
func TestEngineRefusedForms(t *testing.T) {
	const all = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	const streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	server := aggregator(t, shared)
	namespace := newNamespace(t, shared)
	for _, tc := range []struct {
		name, method, path, accept, contentType, body string
		code                                          int32
		reason                                        metav1.StatusReason
		message                                       string
	}{
		{"read unknown", "GET", "", "application/xml", "", "", 406, metav1.StatusReasonNotAcceptable,
			"406: Not Acceptable\n\nAvailable representations: " + all + ", " + streams},
		{"read as nothing known", "GET", "", "application/json;as=Poster;g=meta.k8s.io;v=v1", "", "", 406, metav1.StatusReasonNotAcceptable,
			"only the following media types are accepted: " + all},
		{"read with an unknown stream", "GET", "", "application/json;stream=exec", "", "", 406, metav1.StatusReasonNotAcceptable,
			"only the following media types are accepted: " + all},
		{"watch in a form without stream", "GET", "?watch=1", "application/yaml", "", "", 406, metav1.StatusReasonNotAcceptable,
			"only the following media types are accepted: " + streams},
		{"create from unknown", "POST", "", "", "application/xml", "<a/>", 415, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: " + all},
		{"create from CBOR, which is off", "POST", "", "", "application/cbor", "\xd9\xd9\xf7\xa0", 415, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: " + all},
		{"read CBOR, which is off", "GET", "", "application/cbor", "", "", 406, metav1.StatusReasonNotAcceptable,
			"406: Not Acceptable\n\nAvailable representations: " + all + ", " + streams},
		{"update from unknown", "PUT", "/x", "", "application/xml", "<a/>", 415, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: " + all},
		{"patch of no kind", "PATCH", "/x", "", "application/json", "{}", 415, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type"},
		{"apply in CBOR, which is off", "PATCH", "/x?fieldManager=t", "", "application/apply-patch+cbor", "\xd9\xd9\xf7\xa0", 415, metav1.StatusReasonUnsupportedMediaType,
			"415: Unsupported Media Type"},
		{"no protobuf", "POST", "", "", "application/vnd.kubernetes.protobuf", "{}", 400, metav1.StatusReasonBadRequest,
			"the object provided is unrecognized (must be of type KIND): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})"},
		{"no JSON", "POST", "", "", "application/json", "k8s", 400, metav1.StatusReasonBadRequest,
			"the object provided is unrecognized (must be of type KIND): couldn't get version/kind; json parse error: " +
				"invalid character 'k' looking for beginning of value (6b3873)"},
	} {
		for kind, path := range resourcePaths(namespace) {
			t.Run(tc.name+" "+kind, func(t *testing.T) {
				header := http.Header{}
				if tc.accept != "" {
					header.Set("Accept", tc.accept)
				}
				if tc.contentType != "" {
					header.Set("Content-Type", tc.contentType)
				}
				a := server.do(t, tc.method, path+tc.path, header, []byte(tc.body))
				var got metav1.Status
				if err := runtime.DecodeInto(codecs.UniversalDeserializer(), a.body, &got); err != nil {
					t.Fatalf("no Status: %v\n%d %s", err, a.status, a.body)
				}
				want := metav1.Status{
					Status: metav1.StatusFailure, Code: tc.code, Reason: tc.reason, Message: strings.ReplaceAll(tc.message, "KIND", kind),
				}
				got.TypeMeta, got.Details = metav1.TypeMeta{}, nil
				if diff := cmp.Diff(want, got); diff != "" || a.status != int(tc.code) {
					t.Errorf("status %d, want %d; Status (-want +got):\n%s", a.status, tc.code, diff)
				}
			})
		}
	}
}

// TestEngineErrorForms: an error comes in the form that the client asked objects for, which is all that it may be able to read.
func TestEngineErrorForms(t *testing.T) {
	server := aggregator(t, shared)
	for kind, path := range resourcePaths(newNamespace(t, shared)) {
		for _, f := range forms {
			a := server.do(t, http.MethodGet, path+"/missing", f.accept(""), nil)
			s := f.decode(t, a)
			if a.status != http.StatusNotFound || s["reason"] != string(metav1.StatusReasonNotFound) {
				t.Errorf("%s in %s: %d %v, want 404 NotFound", kind, f.name, a.status, s)
			}
		}
	}
}
