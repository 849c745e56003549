// SPDX-License-Identifier: Apache-2.0

// Package apitesting provides tests that every API should pass.
package apitesting

import (
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"sigs.k8s.io/randfill"

	"example.com/extension-apiserver/pkg/apiserver"
)

// equality compares like apiequality.Semantic, but ignores the order of keys in raw JSON.
var equality = func() conversion.Equalities {
	equality := apiequality.Semantic.Copy()
	if err := equality.AddFunc(func(a, b runtime.RawExtension) bool {
		return cmp.Equal(decoded(a.Raw), decoded(b.Raw)) && reflect.DeepEqual(a.Object, b.Object)
	}); err != nil {
		panic(err) // the function has a valid signature
	}
	return equality
}()

// decoded returns the value of JSON data, or the data itself if it is not JSON.
func decoded(raw []byte) any {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return raw
	}
	return value
}

// seed is constant, so that each run generates the same objects and failures are reproducible.
const seed = 1

// RoundTrip fills objects of each kind with random values and converts them from the hub to each
// version. It encodes and decodes them in JSON, YAML, protobuf and CBOR, and converts them back.
// The test fails with a diff if data is lost, which shows an error in a conversion or in
// generated code.
//
// fuzzers are functions func(*T, randfill.Continue) for types that cannot have arbitrary values.
func RoundTrip(t *testing.T, api apiserver.API, fuzzers ...any) {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any { return fuzzers })
	kinds := 0
	for _, group := range api.Groups {
		hub := schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal}
		for _, gv := range scheme.PrioritizedVersionsForGroup(group.Name) {
			for _, kind := range slices.Sorted(maps.Keys(scheme.KnownTypes(gv))) {
				// IdentityReview is never stored and has no protobuf encoding.
				if roundtrip.GlobalNonRoundTrippableTypes().Has(kind) || !scheme.Recognizes(hub.WithKind(kind)) ||
					kind == "IdentityReview" {
					continue
				}
				kinds++
				t.Run(gv.String()+"/"+kind, func(t *testing.T) {
					fill := fuzzer.FuzzerFor(funcs, rand.NewSource(seed), codecs)
					for range *roundtrip.FuzzIters {
						send(t, scheme, codecs.SupportedMediaTypes(), hub, gv.WithKind(kind), fill)
					}
				})
			}
		}
	}
	if kinds == 0 {
		t.Error("there are no kinds")
	}
}

// send fills an object, encodes it in a version, and decodes it again. It applies no defaults,
// because defaulting is not data loss.
func send(t *testing.T, scheme *runtime.Scheme, forms []runtime.SerializerInfo, hub schema.GroupVersion,
	gvk schema.GroupVersionKind, fill *randfill.Filler) {
	t.Helper()
	want, err := scheme.New(hub.WithKind(gvk.Kind))
	if err != nil {
		t.Fatal(err)
	}
	fill.Fill(want)
	want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	sent, err := scheme.ConvertToVersion(want.DeepCopyObject(), gvk.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		data, err := runtime.Encode(form.Serializer, sent)
		if err != nil {
			t.Fatalf("encode as %s: %v", form.MediaType, err)
		}
		got, err := scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := form.Serializer.Decode(data, nil, got); err != nil {
			t.Fatalf("decode %s: %v\n%s", form.MediaType, err, data)
		}
		if !equality.DeepEqual(sent, got) {
			t.Fatalf("sent as %s (-want +got):\n%s\n%s", form.MediaType, cmp.Diff(sent, got), data)
		}
	}
	got, err := scheme.ConvertToVersion(sent, hub)
	if err != nil {
		t.Fatal(err)
	}
	got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if !equality.DeepEqual(want, got) {
		t.Fatalf("converted to %s and back (-want +got):\n%s", gvk.GroupVersion(), cmp.Diff(want, got))
	}
}
