// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/apihelpers"
)

// longestWrite is a writer that records the length of the longest write and the total length.
type longestWrite struct{ longest, sum int }

func (w *longestWrite) Write(p []byte) (int, error) {
	w.longest, w.sum = max(w.longest, len(p)), w.sum+len(p)
	return len(p), nil
}

// TestStreamMetadata: a list of metadata is written object by object.
func TestStreamMetadata(t *testing.T) {
	mustOptions(testAPI)
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for range 100 {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{"a": strings.Repeat("x", 10_000)}}})
	}
	codecs := apihelpers.GetMetaInternalVersionCodecs()
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
		if !ok {
			t.Fatalf("no serializer for %s", mediaType)
		}
		w := &longestWrite{}
		if err := codecs.EncoderForVersion(info.Serializer, metav1.SchemeGroupVersion).Encode(list, w); err != nil {
			t.Fatal(err)
		}
		if w.longest > w.sum/10 {
			t.Errorf("%s: the longest of the writes has %d of %d bytes, want less than a tenth", mediaType, w.longest, w.sum)
		}
	}
}
