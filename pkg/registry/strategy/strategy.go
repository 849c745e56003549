// SPDX-License-Identifier: Apache-2.0

// Package strategy provides the parts of a strategy that all kinds share. The strategy of a kind
// embeds Base and implements only what is specific to the kind. Base calls the registry of
// k8s.io/apiserver.
package strategy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Base behaves like most built-in kinds: a PUT never creates an object and needs no
// resourceVersion.
type Base struct {
	*runtime.Scheme
	names.NameGenerator
	group string
}

// New returns the Base for a kind of the group in the scheme.
func New(scheme *runtime.Scheme, group string) Base {
	return Base{scheme, names.SimpleNameGenerator, group}
}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (Base) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (Base) AllowUnconditionalUpdate(context.Context) bool { return true }

// Canonicalize implements rest.RESTCreateStrategy and rest.RESTUpdateStrategy.
func (Base) Canonicalize(runtime.Object) {}

// WarningsOnCreate implements rest.RESTCreateStrategy. It warns about finalizers without a
// domain, as kube-apiserver does for custom resources. Built-in kinds reject them.
func (Base) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return finalizerWarnings(obj, nil)
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy. It warns about finalizers without a domain
// that the update adds.
func (Base) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return finalizerWarnings(obj, old)
}

// standardFinalizers are the Kubernetes finalizers without a domain.
var standardFinalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents,
	string(corev1.FinalizerKubernetes)}

func finalizerWarnings(obj, old runtime.Object) []string {
	after, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	known := standardFinalizers
	if before, err := meta.Accessor(old); err == nil {
		known = slices.Concat(known, before.GetFinalizers())
	}
	var warnings []string
	for _, finalizer := range slices.Compact(slices.Sorted(slices.Values(after.GetFinalizers()))) {
		if slices.Contains(known, finalizer) || strings.Contains(finalizer, "/") {
			continue
		}
		path := ""
		if strings.Contains(finalizer, ".") {
			path = " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name%s "+
			"to avoid accidental conflicts with other finalizer writers", finalizer, path))
	}
	return warnings
}

// Enforce returns the errors of the generated validation of the request's version and the
// hand-written errors. It returns at most 100 of each, followed by an error with the number of
// omitted errors. Field, value and detail of an error are limited to 1 KiB each. old is nil on
// create.
func (b Base) Enforce(ctx context.Context, obj, old runtime.Object, handwritten field.ErrorList) field.ErrorList {
	op := operation.Create
	if old != nil {
		op = operation.Update
	}
	// The library compares n errors in time proportional to the square of n.
	few, more := first(handwritten)
	errs, moreGenerated := first(rest.ValidateDeclarativelyWithMigrationChecks(ctx, b.Scheme, obj, old, few, op,
		rest.DeclarativeValidationConfig{}))
	for _, err := range errs {
		shorten(err)
		if err.Type == field.ErrorTypeInvalid && err.BadValue == nil {
			err.BadValue = field.OmitValueType{} // +k8s:immutable sets no value, which would be shown as null
		}
	}
	if more += moreGenerated; more > 0 {
		rest := field.Forbidden(nil, fmt.Sprintf("there are %d more errors", more))
		rest.Field = errs[len(errs)-1].Field
		errs = append(errs, rest)
	}
	return errs
}

const (
	// maxErrors is the maximum number of errors of each source in a response. The library joins n
	// errors in time proportional to the square of n.
	maxErrors = 100
	// maxValue is the maximum length in bytes of a text in an error. The response contains it
	// several times.
	maxValue = 1 << 10
)

// first returns the first maxErrors errors and the number of remaining errors.
func first(errs field.ErrorList) (few field.ErrorList, more int) {
	few = errs[:min(len(errs), maxErrors):min(len(errs), maxErrors)]
	return few, len(errs) - len(few)
}

// shorten truncates long texts in an error.
func shorten(err *field.Error) {
	err.Field, err.Detail = beginning(err.Field), beginning(err.Detail)
	text, ok := err.BadValue.(string)
	if !ok {
		value := reflect.Indirect(reflect.ValueOf(err.BadValue))
		switch value.Kind() {
		case reflect.String:
			text = value.String()
		case reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
			text = fmt.Sprintf("%v", value)
		}
	}
	if len(text) > maxValue {
		err.BadValue = beginning(text)
	}
}

func beginning(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxValue], ""), len(text))
}

// ResetFields returns the top-level fields names for every served version. If a version were
// missing, server-side apply could own the fields through it.
func (b Base) ResetFields(names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, gv := range b.PrioritizedVersionsForGroup(b.group) {
		set := fieldpath.NewSet()
		for _, name := range names {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
		fields[fieldpath.APIVersion(gv.String())] = set
	}
	return fields
}
