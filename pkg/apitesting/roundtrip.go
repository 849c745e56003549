// SPDX-License-Identifier: Apache-2.0

// Package apitesting has tests that every API should pass.
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

// equality is that of apiequality, but for raw JSON, whose keys may be in another order.
var equality = func() conversion.Equalities {
	equality := apiequality.Semantic.Copy()
	if err := equality.AddFunc(func(a, b runtime.RawExtension) bool {
		return cmp.Equal(decoded(a.Raw), decoded(b.Raw)) && reflect.DeepEqual(a.Object, b.Object)
	}); err != nil {
		panic(err) // the function has the right form
	}
	return equality
}()

// decoded returns JSON as a value, or the bytes of what is none.
func decoded(raw []byte) any {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return raw
	}
	return value
}

// seed makes the same objects in each run, so that what fails once fails again.
const seed = 1

// RoundTrip converts objects of each kind, full of random values, from the hub to each version, sends them in
// JSON, YAML, protobuf and CBOR, and converts them back. What is lost on the way is missing in a conversion or in
// generated code; the error names it.
//
// fuzzers are functions func(*T, randfill.Continue) for types whose values are not all possible.
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
				// IdentityReview is never stored, and has no form in protobuf.
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

// send fills an object and sends it through a version. Nothing is defaulted: that is no loss.
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
