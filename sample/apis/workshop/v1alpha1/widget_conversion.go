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
	// RemarkAnnotation is where spec.remark is in every other version.
	RemarkAnnotation = workshop.GroupName + "/remark"
	// MaterialPrefix followed by the name of a part is the annotation that has the part's material, in this version only. A client that
	// reads an object and writes it back so loses nothing that this version has no field for. Each material has an annotation of its own,
	// because server-side apply tracks owners by field: in one annotation for all, two managers would own each other's materials.
	MaterialPrefix = "materials." + workshop.GroupName + "/"
)

// Convert_v1alpha1_Widget_To_v1_Widget takes remark and materials to where every other version has them. A material without a part is
// dropped: the part was deleted.
func Convert_v1alpha1_Widget_To_v1_Widget(in *Widget, out *v1.Widget, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_Widget_To_v1_Widget(in, out, s); err != nil {
		return err
	}
	if in.Spec.Remark != "" {
		out.Annotations = withAnnotation(out.Annotations, RemarkAnnotation, in.Spec.Remark)
	}
	for i, part := range out.Spec.Parts {
		out.Spec.Parts[i].Material = in.Annotations[MaterialPrefix+part.Name]
	}
	for key := range in.Annotations {
		if strings.HasPrefix(key, MaterialPrefix) {
			out.Annotations = withAnnotation(out.Annotations, key, "")
		}
	}
	return nil
}

// Convert_v1_Widget_To_v1alpha1_Widget is the way back.
func Convert_v1_Widget_To_v1alpha1_Widget(in *v1.Widget, out *Widget, s conversion.Scope) error {
	if err := autoConvert_v1_Widget_To_v1alpha1_Widget(in, out, s); err != nil {
		return err
	}
	for _, part := range in.Spec.Parts {
		out.Annotations = withAnnotation(out.Annotations, MaterialPrefix+part.Name, part.Material)
	}
	out.Spec.Remark = in.Annotations[RemarkAnnotation]
	out.Annotations = withAnnotation(out.Annotations, RemarkAnnotation, "")
	return nil
}

// Convert_v1alpha1_WidgetSpec_To_v1_WidgetSpec renames and moves; what has the same name is done by the generated code.
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

// Convert_v1_WidgetSpec_To_v1alpha1_WidgetSpec is the way back.
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

// Convert_v1alpha1_WidgetPart_To_v1_WidgetPart renames; the material is added by the conversion of the whole widget.
func Convert_v1alpha1_WidgetPart_To_v1_WidgetPart(in *WidgetPart, out *v1.WidgetPart,
	s conversion.Scope) error {
	if err := autoConvert_v1alpha1_WidgetPart_To_v1_WidgetPart(in, out, s); err != nil {
		return err
	}
	out.Quantity = in.Count
	return nil
}

// Convert_v1_WidgetPart_To_v1alpha1_WidgetPart is the way back.
func Convert_v1_WidgetPart_To_v1alpha1_WidgetPart(in *v1.WidgetPart, out *WidgetPart,
	s conversion.Scope) error {
	if err := autoConvert_v1_WidgetPart_To_v1alpha1_WidgetPart(in, out, s); err != nil {
		return err
	}
	out.Count = in.Quantity
	return nil
}

// withAnnotation returns a copy with the annotation set, or without it where the value is empty: conversions share maps
// with the object that they convert.
func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	if annotations[key] == value {
		if _, ok := annotations[key]; ok == (value != "") {
			return annotations
		}
	}
	annotations = maps.Clone(annotations)
	if value == "" {
		delete(annotations, key)
		if len(annotations) == 0 {
			return nil
		}
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}
