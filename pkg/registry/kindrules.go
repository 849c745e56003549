// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/pkg/registry/strategy"
)

// rules is the strategy of the main resource of a Kind.
type rules[T Object] struct {
	strategy.Base
	*description[T]
}

func newRules[T Object](d *description[T]) rules[T] {
	return rules[T]{strategy.New(d.scheme, d.gvk.Group), d}
}

// NamespaceScoped implements rest.Scoper.
func (r rules[T]) NamespaceScoped() bool { return !r.ClusterScoped }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (r rules[T]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	object := obj.(T) //nolint:forcetypeassert // a panic is counted
	if r.hasStatus {
		statusOf(object).SetZero()
	}
	object.SetGeneration(1)
	if r.Kind.PrepareForCreate != nil {
		r.Kind.PrepareForCreate(ctx, object)
	}
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (r rules[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	object, oldObject := obj.(T), old.(T) //nolint:forcetypeassert // a panic is counted
	if r.hasStatus {
		statusOf(object).Set(statusOf(oldObject))
	}
	if r.Kind.PrepareForUpdate != nil {
		r.Kind.PrepareForUpdate(ctx, object, oldObject)
	}
	if r.counted(object, oldObject) {
		object.SetGeneration(oldObject.GetGeneration() + 1)
	}
}

// counted reports whether the difference between the objects increments metadata.generation.
func (r rules[T]) counted(obj, old T) bool {
	after, before := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	for i := range after.NumField() {
		switch after.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta":
		case "Status":
			if r.hasStatus {
				continue
			}
			fallthrough
		default:
			if !apiequality.Semantic.DeepEqual(after.Field(i).Addr().Interface(), before.Field(i).Addr().Interface()) {
				return true
			}
		}
	}
	return false
}

// Validate implements rest.RESTCreateStrategy.
func (r rules[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	object, name := obj.(T), r.ValidateName //nolint:forcetypeassert // a panic is counted
	if name == nil {
		name = apivalidation.NameIsDNSSubdomain
	}
	errs := apivalidation.ValidateObjectMetaAccessor(object, !r.ClusterScoped, name, field.NewPath("metadata"))
	errs = append(errs, r.checkFinalizers(object.GetFinalizers(), nil)...)
	var none T
	return r.Enforce(ctx, obj, nil, append(errs, r.handwritten(ctx, r.Kind.Validate, object, none)...))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (r rules[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return r.validateUpdate(ctx, obj, old, r.Kind.Validate)
}

func (r rules[T]) validateUpdate(ctx context.Context, obj, old runtime.Object,
	validate func(context.Context, T, T) field.ErrorList) field.ErrorList {
	object, oldObject := obj.(T), old.(T) //nolint:forcetypeassert // a panic is counted
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(object, oldObject, field.NewPath("metadata"))
	errs = append(errs, r.checkFinalizers(object.GetFinalizers(), oldObject.GetFinalizers())...)
	return r.Enforce(ctx, obj, old, append(errs, r.handwritten(ctx, validate, object, oldObject)...))
}

// checkFinalizers returns an error if finalizers change that the source does not store.
func (r rules[T]) checkFinalizers(finalizers, old []string) field.ErrorList {
	if !r.losesFinalizers || slices.Equal(finalizers, old) {
		return nil
	}
	path := field.NewPath("metadata", "finalizers")
	return field.ErrorList{field.Forbidden(path, "the source does not store finalizers")}
}

// handwritten returns the errors of validate that the old object does not have, with the paths of
// the request's version.
func (r rules[T]) handwritten(ctx context.Context, validate func(context.Context, T, T) field.ErrorList,
	obj, old T) field.ErrorList {
	for _, value := range r.SelectableFields {
		value(obj) // if the function panics, the object is not stored
	}
	if validate == nil {
		return nil
	}
	version := r.gvk.Version
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		version = info.APIVersion
	}
	path := func(path string) string { return r.pathIn(version, path) }
	ctx = context.WithValue(ctx, fieldPathKey{}, path)
	errs := slices.Clone(validate(ctx, obj, old)) // validate may return the same slice again
	if len(errs) > 0 && !reflect.ValueOf(old).IsNil() {
		stored := validate(ctx, old, old)
		errs = slices.DeleteFunc(errs, func(err *field.Error) bool {
			return slices.ContainsFunc(stored, func(had *field.Error) bool {
				return had.Type == err.Type && had.Field == err.Field && had.Detail == err.Detail &&
					apiequality.Semantic.DeepEqual(had.BadValue, err.BadValue)
			})
		})
	}
	for i, err := range errs {
		renamed := *err
		renamed.Field = path(err.Field)
		errs[i] = &renamed
	}
	return errs
}

type fieldPathKey struct{}

// FieldPath returns the path of a hub field in the version of the request, for use in the text of
// an error. ctx must be the context that Validate receives. The server converts the Field of each
// error in the same way.
func FieldPath(ctx context.Context, path string) string {
	if in, ok := ctx.Value(fieldPathKey{}).(func(string) string); ok {
		return in(path)
	}
	return path
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (r rules[T]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	warnings := r.Base.WarningsOnCreate(ctx, obj)
	if r.Warn != nil {
		var none T
		warnings = append(warnings, r.Warn(ctx, obj.(T), none)...) //nolint:forcetypeassert // a panic is counted
	}
	return warnings
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (r rules[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	warnings := r.Base.WarningsOnUpdate(ctx, obj, old)
	if r.Warn != nil {
		warnings = append(warnings, r.Warn(ctx, obj.(T), old.(T))...) //nolint:forcetypeassert // a panic is counted
	}
	return warnings
}

// GetResetFields implements rest.ResetFieldsStrategy. With the subresource status, server-side
// apply through the main resource does not own the status.
func (r rules[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !r.hasStatus {
		return nil
	}
	return r.ResetFields("status")
}

// HubPath returns the name in the hub of a field that Paths names in another version. Package
// apitesting calls it.
func (r rules[T]) HubPath(version, path string) string {
	longest, inHub := "", path
	for hub, name := range r.Paths[version] {
		inside, ok := strings.CutPrefix(path, name)
		if ok && len(name) > len(longest) && (inside == "" || strings.ContainsAny(inside[:1], ".[")) {
			longest, inHub = name, hub+inside
		}
	}
	return inHub
}

// statusRules is the strategy of the subresource status.
type statusRules[T Object] struct {
	rules[T]
	status Status[T]
}

// PrepareForUpdate implements rest.RESTUpdateStrategy. It restores everything except the status
// and the metadata that the library checks.
func (r statusRules[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	object, oldObject := obj.(T), old.(T) //nolint:forcetypeassert // a panic is counted
	after, before := reflect.ValueOf(object).Elem(), reflect.ValueOf(oldObject).Elem()
	for i := range after.NumField() {
		switch after.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			after.Field(i).Set(before.Field(i))
		}
	}
	object.SetLabels(oldObject.GetLabels())
	object.SetAnnotations(oldObject.GetAnnotations())
	object.SetFinalizers(oldObject.GetFinalizers())
	object.SetOwnerReferences(oldObject.GetOwnerReferences())
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (r statusRules[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return r.validateUpdate(ctx, obj, old, r.status.Validate)
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (r statusRules[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	return r.Base.WarningsOnUpdate(ctx, obj, old)
}

// GetResetFields implements rest.ResetFieldsStrategy. It includes the metadata, so that status
// applies do not own metadata and cause no conflicts about it.
func (r statusRules[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, gv := range r.versions {
		set := fieldpath.NewSet()
		for _, name := range topLevelFields(r.scheme, gv.WithKind(r.gvk.Kind)) {
			if name != "status" {
				set.Insert(fieldpath.MakePathOrDie(name))
			}
		}
		fields[fieldpath.APIVersion(gv.String())] = set
	}
	return fields
}
