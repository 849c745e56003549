// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidate "k8s.io/apimachinery/pkg/api/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
)

// maxMaterial is the +k8s:maxLength of the field in the versions that have it.
const maxMaterial = 63

// validate implements the validation that tags cannot express. old is nil on create.
func validate(ctx context.Context, widget, old *v1.Widget) field.ErrorList {
	if old == nil {
		old = &v1.Widget{}
	}
	errs := validateReplicas(ctx, &widget.Spec)
	errs = append(errs, validateAnnotations(widget.Annotations, old.Annotations)...)
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && info.APIVersion == v1alpha1.SchemeGroupVersion.Version {
		errs = append(errs, validateMaterials(ctx, widget.Spec.Parts, old.Spec.Parts)...)
	}
	return errs
}

func validateReplicas(ctx context.Context, spec *v1.WidgetSpec) field.ErrorList {
	if spec.Replicas == nil || spec.MaxReplicas == nil || *spec.Replicas <= *spec.MaxReplicas {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), *spec.Replicas,
		fmt.Sprintf("must not be greater than %s", registry.FieldPath(ctx, "spec.maxReplicas")))}
}

// validateAnnotations rejects new and changed annotations that v1alpha1 would read as materials.
// The annotations of v1alpha1 itself have been converted to fields of the parts.
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

// validateMaterials applies the maximum length to requests in v1alpha1, which has annotations
// instead of the field and therefore no tag.
func validateMaterials(ctx context.Context, parts, old []v1.WidgetPart) field.ErrorList {
	oldMaterials := map[string]string{}
	for _, part := range old {
		oldMaterials[part.Name] = part.Material
	}
	var errs field.ErrorList
	for _, part := range parts {
		if part.Material != oldMaterials[part.Name] {
			path := field.NewPath("metadata", "annotations").Key(v1alpha1.MaterialPrefix + part.Name)
			errs = append(errs, apivalidate.MaxLength(ctx, operation.Operation{}, path, &part.Material, nil,
				maxMaterial)...)
		}
	}
	return errs
}

func validateStatus(_ context.Context, widget, old *v1.Widget) field.ErrorList {
	status, path := &widget.Status, field.NewPath("status")
	var errs field.ErrorList
	if status.ReadyReplicas > status.Replicas {
		errs = append(errs, field.Invalid(path.Child("readyReplicas"), status.ReadyReplicas,
			"must not be greater than status.replicas"))
	}
	if _, err := metav1.ParseToLabelSelector(status.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), status.Selector, err.Error()))
	}
	oldConditions := map[string]metav1.Condition{}
	for _, condition := range old.Status.Conditions {
		oldConditions[condition.Type] = condition
	}
	for i, condition := range status.Conditions {
		if !apiequality.Semantic.DeepEqual(condition, oldConditions[condition.Type]) {
			errs = append(errs, metav1validation.ValidateCondition(condition, path.Child("conditions").Index(i))...)
		}
	}
	return errs
}
