// SPDX-License-Identifier: Apache-2.0

package install

import (
	"flag"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"sigs.k8s.io/randfill"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// seed makes the same objects in each run, so that what fails once fails again; another one finds other objects.
var seed = flag.Int64("seed", 1, "seed of the objects that are sent round")

// fuzzers is filled by the files of the kinds whose fields have defaults: what is unset would come back set.
var fuzzers []any

// eachKind runs the test for every kind, and its list, as the group version has it.
func eachKind(t *testing.T, gv schema.GroupVersion, test func(*testing.T, *runtime.Scheme, serializer.CodecFactory, schema.GroupVersionKind, *randfill.Filler)) {
	t.Helper()
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any { return fuzzers })
	for _, kind := range slices.Sorted(maps.Keys(scheme.KnownTypes(gv))) {
		if roundtrip.GlobalNonRoundTrippableTypes().Has(kind) || !scheme.Recognizes(workshop.SchemeGroupVersion.WithKind(kind)) {
			continue
		}
		t.Run(gv.Version+"/"+kind, func(t *testing.T) {
			// The library's own loop over the kinds seeds its numbers at random.
			test(t, scheme, codecs, gv.WithKind(kind), fuzzer.FuzzerFor(funcs, rand.NewSource(*seed), codecs))
		})
	}
}

// TestRoundTrip sends objects full of random values from the internal form to each version, in JSON and in protobuf, and
// back: what is lost on the way is missing in a conversion or in the generated protobuf code.
func TestRoundTrip(t *testing.T) {
	check := func(t *testing.T, scheme *runtime.Scheme, codecs serializer.CodecFactory, gvk schema.GroupVersionKind, fill *randfill.Filler) {
		roundtrip.RoundTripSpecificKind(t, gvk, scheme, codecs, fill, nil)
	}
	eachKind(t, workshop.SchemeGroupVersion, check)
	for _, gv := range GroupVersions() {
		eachKind(t, gv, check)
	}
}

// TestRoundTripForms does the same with YAML, in which people write, and with CBOR.
func TestRoundTripForms(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeYAML, runtime.ContentTypeCBOR} {
		t.Run(mediaType, func(t *testing.T) {
			eachKind(t, workshop.SchemeGroupVersion, func(t *testing.T, scheme *runtime.Scheme, _ serializer.CodecFactory, gvk schema.GroupVersionKind, fill *randfill.Filler) {
				codecs := serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
				info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
				if !ok {
					t.Fatalf("no serializer for %s", mediaType)
				}
				for range *roundtrip.FuzzIters {
					sendRound(t, scheme, codecs, info.Serializer, gvk, fill)
				}
			})
		})
	}
}

// sendRound fills an object and sends it through each version that knows it.
func sendRound(t *testing.T, scheme *runtime.Scheme, codecs serializer.CodecFactory, form runtime.Serializer, gvk schema.GroupVersionKind, fill *randfill.Filler) {
	t.Helper()
	want, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	fill.Fill(want)
	want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	for _, gv := range GroupVersions() {
		if !scheme.Recognizes(gv.WithKind(gvk.Kind)) {
			continue
		}
		data, err := runtime.Encode(codecs.EncoderForVersion(form, gv), want)
		if err != nil {
			t.Fatalf("encode as %s: %v", gv, err)
		}
		got, err := runtime.Decode(codecs.DecoderToVersion(form, workshop.SchemeGroupVersion), data)
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, data)
		}
		if !apiequality.Semantic.DeepEqual(want, got) {
			t.Fatalf("object after its way through %s (-want +got):\n%s\n%s", gv, cmp.Diff(want, got), data)
		}
	}
}
