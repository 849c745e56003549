// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"example.com/extension-apiserver/internal/patch"
)

const (
	// maxMetadata is the maximum number of entries in each list and map of an object's metadata.
	// The library has no limit.
	maxMetadata = 5000
	// fewMetadata is the number of entries that the library may validate. The time that it takes
	// to join n errors grows with the square of n.
	fewMetadata = 100
	// shortList is the number of elements that the library may check for duplicates. The time that
	// generated validation takes grows with the cube of their number.
	shortList = 1000
	// maxText is the maximum length in bytes of a string in an object's metadata, except the
	// values of annotations. The library's errors repeat the string. A valid string has at most
	// 317 bytes.
	maxText = 1 << 10
	// maxMetadataErrors is the maximum number of errors in a response.
	maxMetadataErrors = 100
)

// WithObjectLimits returns admission that rejects, with 422, objects that the library would
// validate for minutes. It checks an object before it calls plugins.
func WithObjectLimits(plugins admission.Interface, patches *Patches) admission.Interface {
	return limitObjects{plugins, patches}
}

type limitObjects struct {
	admission.Interface
	patches *Patches
}

// Handles implements admission.Interface.
func (l limitObjects) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || l.Interface.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (l limitObjects) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	object, err := meta.Accessor(a.GetObject())
	if err == nil && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update) {
		old, _ := meta.Accessor(a.GetOldObject())
		errs := metadataErrors(object, old)
		list, mapped := patch.Longest(a.GetObject())
		if max(list, mapped) > maxList { // a patch can add to the stored object
			oldList, oldMapped := patch.Longest(a.GetOldObject())
			if list > max(maxList, oldList) {
				errs = append(errs, field.Forbidden(field.NewPath("object"),
					fmt.Sprintf("a list would have %d elements, and the limit is %d", list, maxList)))
			}
			if mapped > max(maxList, oldMapped) {
				errs = append(errs, field.Forbidden(field.NewPath("object"),
					fmt.Sprintf("a map would have %d entries, and the limit is %d", mapped, maxList)))
			}
		}
		if len(errs) > 0 {
			return apierrors.NewInvalid(a.GetKind().GroupKind(),
				object.GetName()[:min(len(object.GetName()), maxText)], errs)
		}
		if list > shortList {
			if err := l.checkDuplicates(a, o); err != nil {
				return err
			}
		}
	}
	if plugins, ok := l.Interface.(admission.MutationInterface); ok && l.Interface.Handles(a.GetOperation()) {
		return plugins.Admit(ctx, a, o)
	}
	return nil
}

// checkDuplicates returns an error if the object has a duplicate that its schema does not allow.
func (l limitObjects) checkDuplicates(a admission.Attributes, o admission.ObjectInterfaces) error {
	versioned, err := o.GetObjectConvertor().ConvertToVersion(a.GetObject(), a.GetKind().GroupVersion())
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return err
	}
	if err := l.patches.FitsSchema(content); err != nil {
		misfit := field.Forbidden(field.NewPath("object"), "does not match its schema: "+err.Error())
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{misfit})
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (l limitObjects) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if plugins, ok := l.Interface.(admission.ValidationInterface); ok && l.Interface.Handles(a.GetOperation()) {
		return plugins.Validate(ctx, a, o)
	}
	return nil
}

// metadataErrors returns an error for each list and map that is too long, unless it was as long
// before, and for long strings and several controllers. If a list or map is so long that the
// library must not validate it, metadataErrors returns the first of the library's errors. old is
// nil on create.
func metadataErrors(object, old metav1.Object) (errs field.ErrorList) {
	path := field.NewPath("metadata")
	counts, before := metadataCounts(object), metadataCounts(old)
	for i, name := range []string{"finalizers", "ownerReferences", "labels", "annotations", "managedFields"} {
		most := maxMetadata
		if name == ownersName {
			most = patch.MaxOwners
		}
		if counts[i] > max(most, before[i]) {
			errs = append(errs, field.TooMany(path.Child(name), counts[i], most))
		}
	}
	if name, length := longestText(object); length > maxText {
		if _, before := longestText(old); length > before {
			return append(errs, field.Forbidden(path.Child(name),
				fmt.Sprintf("a string has %d bytes, and the limit is %d", length, maxText)))
		}
	}
	controllers := 0
	for _, owner := range object.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			controllers++
		}
	}
	// For each further controller, the library adds an error that contains all owners.
	if controllers > 1 {
		errs = append(errs, field.Invalid(path.Child("ownerReferences"), fmt.Sprintf("%d controllers", controllers),
			"only one reference can have controller set to true"))
	}
	if len(errs) > 0 || slices.Max(counts[:]) <= fewMetadata {
		return errs
	}
	errs = slices.Concat(
		metav1validation.ValidateLabels(object.GetLabels(), path.Child("labels")),
		apivalidation.ValidateAnnotations(object.GetAnnotations(), path.Child("annotations")),
		apivalidation.ValidateOwnerReferences(object.GetOwnerReferences(), path.Child("ownerReferences")),
		apivalidation.ValidateFinalizers(object.GetFinalizers(), path.Child("finalizers")),
		metav1validation.ValidateManagedFields(object.GetManagedFields(), path.Child("managedFields")))
	if more := len(errs) - maxMetadataErrors; more > 0 {
		errs = append(errs[:maxMetadataErrors], field.Forbidden(path, fmt.Sprintf("there are %d more errors", more)))
	}
	return errs
}

// longestText returns the name of the field with the longest string, and the length of the string.
func longestText(object metav1.Object) (name string, length int) {
	if object == nil {
		return "", 0
	}
	see := func(of string, texts ...string) {
		for _, text := range texts {
			if len(text) > length {
				name, length = of, len(text)
			}
		}
	}
	see("name", object.GetName())
	see("generateName", object.GetGenerateName())
	see("namespace", object.GetNamespace())
	see("finalizers", object.GetFinalizers()...)
	for key, value := range object.GetLabels() {
		see("labels", key, value)
	}
	for key := range object.GetAnnotations() {
		see("annotations", key)
	}
	for _, owner := range object.GetOwnerReferences() {
		see(ownersName, owner.APIVersion, owner.Kind, owner.Name, string(owner.UID))
	}
	for _, entry := range object.GetManagedFields() {
		see("managedFields", entry.Manager, entry.APIVersion, string(entry.Operation), entry.FieldsType,
			entry.Subresource)
	}
	return name, length
}

// metadataCounts returns the numbers of finalizers, owner references, labels, annotations and
// managed fields entries.
func metadataCounts(object metav1.Object) (counts [5]int) {
	if object == nil {
		return counts
	}
	return [5]int{
		len(object.GetFinalizers()), len(object.GetOwnerReferences()), len(object.GetLabels()),
		len(object.GetAnnotations()),
		len(object.GetManagedFields()),
	}
}
