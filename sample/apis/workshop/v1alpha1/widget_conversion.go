// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/conversion"

	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

const (
	// RemarkAnnotation holds spec.remark in every other version.
	RemarkAnnotation = workshop.GroupName + "/remark"
	// MaterialPrefix followed by the name of a part is the annotation for the part's material.
	// Only this version uses it, so that a client that reads an object and writes it back loses
	// no data for which this version has no field. Each material has its own annotation, because
	// server-side apply tracks owners by field: with one annotation for all, two managers would
	// own each other's materials.
	MaterialPrefix = "materials." + workshop.GroupName + "/"
)

// Convert_v1alpha1_Widget_To_v1_Widget moves the remark and the materials to their place in all
// other versions. It drops a material without a part, because the part was deleted.
func Convert_v1alpha1_Widget_To_v1_Widget(in *Widget, out *v1.Widget, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_Widget_To_v1_Widget(in, out, s); err != nil {
		return err
	}
	changes := map[string]string{}
	for key := range in.Annotations {
		if strings.HasPrefix(key, MaterialPrefix) {
			changes[key] = ""
		}
	}
	if in.Spec.Remark != "" {
		changes[RemarkAnnotation] = in.Spec.Remark
	}
	for i, part := range out.Spec.Parts {
		out.Spec.Parts[i].Material = in.Annotations[MaterialPrefix+part.Name]
	}
	out.Annotations = withAnnotations(out.Annotations, changes)
	return nil
}

// Convert_v1_Widget_To_v1alpha1_Widget is the reverse conversion.
func Convert_v1_Widget_To_v1alpha1_Widget(in *v1.Widget, out *Widget, s conversion.Scope) error {
	if err := autoConvert_v1_Widget_To_v1alpha1_Widget(in, out, s); err != nil {
		return err
	}
	changes := map[string]string{RemarkAnnotation: ""}
	for _, part := range in.Spec.Parts {
		changes[MaterialPrefix+part.Name] = part.Material
	}
	out.Spec.Remark = in.Annotations[RemarkAnnotation]
	out.Annotations = withAnnotations(out.Annotations, changes)
	return nil
}

// Convert_v1alpha1_WidgetSpec_To_v1_WidgetSpec converts renamed and moved fields. The generated
// code converts fields with the same name.
func Convert_v1alpha1_WidgetSpec_To_v1_WidgetSpec(in *WidgetSpec, out *v1.WidgetSpec,
	s conversion.Scope) error {
	if err := autoConvert_v1alpha1_WidgetSpec_To_v1_WidgetSpec(in, out, s); err != nil {
		return err
	}
	out.Model = in.Design
	out.Grade = v1.WidgetGrade(in.Quality)
	out.Replicas = in.Scale.Desired
	out.MaxReplicas = in.Scale.Limit
	return nil
}

// Convert_v1_WidgetSpec_To_v1alpha1_WidgetSpec is the reverse conversion.
func Convert_v1_WidgetSpec_To_v1alpha1_WidgetSpec(in *v1.WidgetSpec, out *WidgetSpec,
	s conversion.Scope) error {
	if err := autoConvert_v1_WidgetSpec_To_v1alpha1_WidgetSpec(in, out, s); err != nil {
		return err
	}
	out.Design = in.Model
	out.Quality = WidgetQuality(in.Grade)
	out.Scale = WidgetScale{Desired: in.Replicas, Limit: in.MaxReplicas}
	return nil
}

// Convert_v1alpha1_WidgetPart_To_v1_WidgetPart converts the renamed field. The conversion of the
// whole widget adds the material.
func Convert_v1alpha1_WidgetPart_To_v1_WidgetPart(in *WidgetPart, out *v1.WidgetPart,
	s conversion.Scope) error {
	if err := autoConvert_v1alpha1_WidgetPart_To_v1_WidgetPart(in, out, s); err != nil {
		return err
	}
	out.Quantity = in.Count
	return nil
}

// Convert_v1_WidgetPart_To_v1alpha1_WidgetPart is the reverse conversion.
func Convert_v1_WidgetPart_To_v1alpha1_WidgetPart(in *v1.WidgetPart, out *WidgetPart,
	s conversion.Scope) error {
	if err := autoConvert_v1_WidgetPart_To_v1alpha1_WidgetPart(in, out, s); err != nil {
		return err
	}
	out.Count = in.Quantity
	return nil
}

// withAnnotations returns the annotations with changes, which have an empty value for each key to
// remove. It does not modify the argument, because conversions share maps with the object that they
// convert.
func withAnnotations(annotations, changes map[string]string) map[string]string {
	maps.DeleteFunc(changes, func(key, value string) bool {
		have, found := annotations[key]
		return have == value && found == (value != "")
	})
	if len(changes) == 0 {
		return annotations
	}
	changed := maps.Clone(annotations)
	if changed == nil {
		changed = map[string]string{}
	}
	for key, value := range changes {
		if changed[key] = value; value == "" {
			delete(changed, key)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return changed
}
