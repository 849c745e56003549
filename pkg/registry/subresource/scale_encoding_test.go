// SPDX-License-Identifier: Apache-2.0

package subresource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

func scaleScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	AddScaleToScheme(scheme)
	return scheme
}

// TestScale: the kind of the subresource scale is encoded and decoded in every media type. The
// library converts requests to the internal version of the group, so that version must be
// registered with the same type.
func TestScale(t *testing.T) {
	scheme := scaleScheme()
	codecs := serializer.NewCodecFactory(scheme)
	internal := schema.GroupVersion{Group: "autoscaling", Version: runtime.APIVersionInternal}
	want := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "s", ResourceVersion: "5"},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
		Status:     autoscalingv1.ScaleStatus{Replicas: 2, Selector: "a=b"},
	}
	for _, info := range codecs.SupportedMediaTypes() {
		t.Run(info.MediaType, func(t *testing.T) {
			data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, autoscalingv1.SchemeGroupVersion),
				want.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			got, gvk, err := codecs.DecoderToVersion(info.Serializer, internal).Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := autoscalingv1.SchemeGroupVersion.WithKind("Scale"); *gvk != want {
				t.Errorf("kind that is sent: got %s, want %s", gvk, want)
			}
			if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
				t.Errorf("scale after its way through %s (-want +got):\n%s", info.MediaType, diff)
			}
		})
	}
}

// TestScaleOnly: no other kind of the group autoscaling is registered.
func TestScaleOnly(t *testing.T) {
	for gvk := range scaleScheme().AllKnownTypes() {
		if gvk.Group == autoscalingv1.GroupName && gvk.Kind != "Scale" {
			t.Errorf("got the kind %s, want Scale only", gvk)
		}
	}
}
