// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// conversionSeeds holds JSON objects that exercise the conversions of each kind. The files of the
// kinds fill it.
var conversionSeeds = map[schema.GroupVersionKind][]string{}

// FuzzConversion checks that no JSON or protobuf from a client crashes the server, and that the
// result is stable: once an object has been converted through every version, further conversions
// do not change it.
func FuzzConversion(f *testing.F) {
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	kinds := servedKinds(scheme)
	for i, gvk := range kinds {
		for _, body := range []string{
			`{}`, `null`, `{"metadata":null,"spec":null,"status":null,"items":[{},null]}`,
			`{"metadata":{"name":"w","annotations":{"a":"b"},"managedFields":[{"fieldsV1":{ "f:spec" : {} }}]},"spec":{"parts":[]}}`,
			fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"creationTimestamp":"2026-01-02T03:04:05.6Z"}}`,
				gvk.GroupVersion(), gvk.Kind),
		} {
			f.Add(uint8(i), false, []byte(body))
		}
		obj, err := scheme.New(gvk)
		if err != nil {
			f.Fatal(err)
		}
		scheme.Default(obj)
		data, err := obj.(protobufMessage).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), true, data)
		for _, body := range conversionSeeds[gvk] {
			f.Add(uint8(i), false, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, protobuf bool, body []byte) {
		gvk := kinds[int(kind)%len(kinds)]
		mediaType := runtime.ContentTypeJSON
		if protobuf {
			mediaType = runtime.ContentTypeProtobuf
			body = envelope(t, gvk, body)
		}
		info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
		if !ok {
			t.Fatalf("no serializer for %s", mediaType)
		}
		decoder := codecs.DecoderToVersion(info.Serializer, v1.SchemeGroupVersion)
		obj, actual, err := decoder.Decode(body, &gvk, nil)
		// The bytes may name another kind, or a type that is not an object of the API, such as
		// DeleteOptions.
		if err != nil || !slices.Contains(kinds, *actual) {
			return
		}
		through := func(gv schema.GroupVersion, obj runtime.Object) runtime.Object {
			t.Helper()
			data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, gv), obj.DeepCopyObject())
			if err != nil {
				t.Fatalf("encode as %s: %v", gv, err)
			}
			out, err := runtime.Decode(decoder, data)
			if err != nil {
				t.Fatalf("decode what was encoded as %s: %v\n%q", gv, err, data)
			}
			return out
		}
		var known []schema.GroupVersion
		for _, gv := range GroupVersions() {
			if scheme.Recognizes(gv.WithKind(actual.Kind)) {
				known = append(known, gv)
				obj = through(gv, obj)
			}
		}
		for _, gv := range known {
			if got := through(gv, obj); !apiequality.Semantic.DeepEqual(obj, got) {
				t.Errorf("%s after its way through %s (-want +got):\n%s", actual.Kind, gv, cmp.Diff(obj, got))
			}
		}
	})
}

// protobufMessage is implemented by the generated code of every kind.
type protobufMessage interface {
	Marshal() ([]byte, error)
}

// servedKinds returns the kinds of each version, ordered by version and name.
func servedKinds(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	// AddToGroupVersion registers the options of requests in every group version.
	options := runtime.NewScheme()
	metav1.AddToGroupVersion(options, v1.SchemeGroupVersion)
	for _, gv := range GroupVersions() {
		for _, kind := range slices.Sorted(maps.Keys(scheme.KnownTypes(gv))) {
			if !options.Recognizes(v1.SchemeGroupVersion.WithKind(kind)) {
				out = append(out, gv.WithKind(kind))
			}
		}
	}
	return out
}

// envelope wraps a message in the envelope of the Kubernetes protobuf encoding.
func envelope(t *testing.T, gvk schema.GroupVersionKind, message []byte) []byte {
	t.Helper()
	data, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind},
		Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), data...)
}
