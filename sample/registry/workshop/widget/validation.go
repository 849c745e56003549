// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidate "k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
)

// maxMaterial is the +k8s:maxLength of the versions that have the field.
const maxMaterial = 63

// validate holds the rules that tags cannot say: the name is a DNS subdomain as with built-in kinds, and replicas stays
// below maxReplicas.
func validate(ctx context.Context, widget *workshop.Widget, paths fieldPaths) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&widget.ObjectMeta, true, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	errs = append(errs, validateReplicas(&widget.Spec, paths)...)
	errs = append(errs, validateAnnotations(widget.Annotations, nil)...)
	return append(errs, validateMaterials(ctx, widget.Spec.Parts, nil, paths)...)
}

// validateUpdate applies each rule only when one of its fields changes, so that an object stored before the rule
// existed can still be updated elsewhere.
func validateUpdate(ctx context.Context, widget, old *workshop.Widget, paths fieldPaths) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&widget.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	if !apiequality.Semantic.DeepEqual(widget.Spec.Replicas, old.Spec.Replicas) ||
		!apiequality.Semantic.DeepEqual(widget.Spec.MaxReplicas, old.Spec.MaxReplicas) {
		errs = append(errs, validateReplicas(&widget.Spec, paths)...)
	}
	errs = append(errs, validateAnnotations(widget.Annotations, old.Annotations)...)
	return append(errs, validateMaterials(ctx, widget.Spec.Parts, old.Spec.Parts, paths)...)
}

func validateReplicas(spec *workshop.WidgetSpec, paths fieldPaths) field.ErrorList {
	if spec.Replicas == nil || spec.MaxReplicas == nil || *spec.Replicas <= *spec.MaxReplicas {
		return nil
	}
	return field.ErrorList{field.Invalid(paths.replicas, *spec.Replicas,
		"must not be greater than "+paths.maxReplicas.String())}
}

// validateAnnotations rejects annotations that v1alpha1 would take for materials. Its own are fields of the parts here.
func validateAnnotations(annotations, old map[string]string) field.ErrorList {
	var errs field.ErrorList
	for key, value := range annotations {
		if oldValue, had := old[key]; strings.HasPrefix(key, v1alpha1.MaterialPrefix) && (!had || value != oldValue) {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(key),
				"set the field material of the part"))
		}
	}
	return errs
}

// validateMaterials holds the rule of the tag where the request's version has no field to put a tag on.
func validateMaterials(ctx context.Context, parts, old []workshop.WidgetPart, paths fieldPaths) field.ErrorList {
	if paths.material == nil {
		return nil
	}
	oldMaterials := map[string]string{}
	for _, part := range old {
		oldMaterials[part.Name] = part.Material
	}
	var errs field.ErrorList
	for _, part := range parts {
		if part.Material != oldMaterials[part.Name] {
			errs = append(errs, apivalidate.MaxLength(ctx, operation.Operation{}, paths.material(part.Name),
				&part.Material, nil, maxMaterial)...)
		}
	}
	return errs
}

// validateStatus checks what changes, for the same reason.
func validateStatus(status, old *workshop.WidgetStatus) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	if status.ReadyReplicas > status.Replicas && (status.ReadyReplicas != old.ReadyReplicas ||
		status.Replicas != old.Replicas) {
		errs = append(errs, field.Invalid(path.Child("readyReplicas"), status.ReadyReplicas,
			"must not be greater than status.replicas"))
	}
	if status.Selector != old.Selector {
		if _, err := metav1.ParseToLabelSelector(status.Selector); err != nil {
			errs = append(errs, field.Invalid(path.Child("selector"), status.Selector, err.Error()))
		}
	}
	oldConditions := map[string]metav1.Condition{}
	for _, condition := range old.Conditions {
		oldConditions[condition.Type] = condition
	}
	for i, condition := range status.Conditions {
		if !apiequality.Semantic.DeepEqual(condition, oldConditions[condition.Type]) {
			errs = append(errs, metav1validation.ValidateCondition(condition, path.Child("conditions").Index(i))...)
		}
	}
	return errs
}
