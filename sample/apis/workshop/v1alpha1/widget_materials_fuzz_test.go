// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// FuzzWidgetMaterials: whatever a client of this version writes into the annotation is either the materials of the parts, to
// the letter, or stays where it is for validation to refuse. What was understood comes back the same.
func FuzzWidgetMaterials(f *testing.F) {
	f.Add(`{"screw":"steel","frame":"oak"}`, "screw", "frame", "")
	f.Add(`{"screw":"steel","gone":"tin"}`, "screw", "frame", "for the hall")
	f.Add(`{"screw":""}`, "screw", "", "\x00")
	f.Add(`{"screw":"<b>&\u2028\"\\"}`, "screw", "Screw", "{}")
	f.Add(`{"screw":"a","screw":"b"}`, "screw", "x", "")
	f.Add(" {}\n", "screw", "frame", "")
	f.Add("null", "screw", "frame", "")
	f.Add("", "screw", "frame", "")
	f.Add("steel", "screw", "frame", "")
	f.Add(`["steel"]`, "screw", "frame", "")
	f.Add(`{"screw":1}`, "screw", "frame", "")
	f.Add(`{"screw":"steel"} trailing`, "screw", "frame", "")
	f.Add(`{"screw":"steel","frame":null,"x":{}}`, "screw", "frame", "")
	f.Add("{\"screw\":\"\xff\"}", "screw", "frame", "")
	scheme := newScheme(f)
	f.Fuzz(func(t *testing.T, text, name, other, remark string) {
		// No client can send other text in JSON; in protobuf, the names of parts are validated.
		if name == other || !utf8.ValidString(name+other) {
			return
		}
		old := withMaterials(text, []WidgetPart{{Name: name}, {Name: other}})
		old.Annotations["a"] = "b"
		old.Spec.Remark = remark
		before, got := old.DeepCopy(), &workshop.Widget{}
		if err := scheme.Convert(&old, got, nil); err != nil {
			t.Fatal(err)
		}

		want := &workshop.Widget{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}},
			Spec:       workshop.WidgetSpec{Parts: []workshop.WidgetPart{{Name: name}, {Name: other}}},
		}
		if remark != "" {
			want.Annotations[RemarkAnnotation] = remark
		}
		var materials map[string]string
		understood := json.Unmarshal([]byte(text), &materials) == nil
		if understood {
			want.Spec.Parts[0].Material, want.Spec.Parts[1].Material = materials[name], materials[other]
		} else {
			want.Annotations[MaterialsAnnotation] = text
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("internal form of %q (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(before, &old); diff != "" {
			t.Errorf("the object that was converted (-before +after):\n%s", diff)
		}
		if !understood {
			return
		}
		back, again := &Widget{}, &workshop.Widget{}
		if err := scheme.Convert(got, back, nil); err != nil {
			t.Fatal(err)
		}
		if err := scheme.Convert(back, again, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("internal form after its way through v1alpha1, with %q (-want +got):\n%s", back.Annotations[MaterialsAnnotation], diff)
		}
	})
}
