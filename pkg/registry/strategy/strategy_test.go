// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// TestFinalizerWarnings: adding a finalizer without a domain causes a warning.
func TestFinalizerWarnings(t *testing.T) {
	b := newBase()
	obj := gadget("p", 1)
	obj.Finalizers = []string{"foo", "example.com", "foo", "example.com/a", "orphan",
		"foregroundDeletion", "kubernetes"}
	want := []string{
		`metadata.finalizers: "example.com": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "foo": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
	}
	if diff := cmp.Diff(want, b.WarningsOnCreate(t.Context(), obj)); diff != "" {
		t.Errorf("on create (-want +got):\n%s", diff)
	}
	old := gadget("p", 1)
	old.Finalizers = []string{"example.com"}
	if diff := cmp.Diff(want[1:], b.WarningsOnUpdate(t.Context(), obj, old)); diff != "" {
		t.Errorf("on update (-want +got):\n%s", diff)
	}
}

func newBase() Base {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	return New(scheme, workshop.GroupName)
}

func gadget(purpose string, precision int32) *v1.Gadget {
	return &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Spec: v1.GadgetSpec{Purpose: purpose, Precision: &precision}}
}

// TestBase: by default, a PUT never creates an object, a PUT without a resourceVersion is
// accepted, and there are no warnings.
func TestBase(t *testing.T) {
	b := newBase()
	if b.AllowCreateOnUpdate(t.Context()) {
		t.Error("PUT of an object that does not exist: got create, want not found")
	}
	if !b.AllowUnconditionalUpdate(t.Context()) {
		t.Error("PUT without a resourceVersion: got refused, want accepted")
	}
	// A kind could warn about these values.
	obj, old := gadget("", -1), gadget(strings.Repeat("x", 1000), 99)
	if got := b.WarningsOnCreate(t.Context(), obj); got != nil {
		t.Errorf("warnings on create: got %q, want none", got)
	}
	if got := b.WarningsOnUpdate(t.Context(), obj, old); got != nil {
		t.Errorf("warnings on update: got %q, want none", got)
	}
	b.Canonicalize(obj)
	if diff := cmp.Diff(gadget("", -1), obj); diff != "" {
		t.Errorf("canonical form (-want +got):\n%s", diff)
	}
	kinds, _, err := b.ObjectKinds(obj)
	if want := v1.SchemeGroupVersion.WithKind("Gadget"); err != nil || !slices.Contains(kinds, want) {
		t.Errorf("kinds of a gadget: got %v and error %v, want %s", kinds, err, want)
	}
	first, second := b.GenerateName("gadget-"), b.GenerateName("gadget-")
	if !strings.HasPrefix(first, "gadget-") || first == second || len(first) == len("gadget-") {
		t.Errorf("names for generateName gadget-: got %q and %q, want two names with that prefix", first, second)
	}
}

// TestEnforce: on create and update, Enforce returns the errors of the tags and the hand-written
// errors.
func TestEnforce(t *testing.T) {
	byHand := field.ErrorList{field.Forbidden(field.NewPath("spec", "purpose"), "not on a Sunday")}
	for _, tc := range []struct {
		name        string
		obj, old    *v1.Gadget
		handwritten field.ErrorList
		want        []string
	}{
		{"create", gadget("measures", 6), nil, nil, nil},
		{"create against a tag", gadget("measures", 7), nil, nil, []string{"spec.precision: Invalid value"}},
		{"create against two tags", gadget("", -1), nil, nil,
			[]string{"spec.precision: Invalid value", "spec.purpose: Required value"}},
		{"create against a rule written by hand", gadget("measures", 6), nil, byHand,
			[]string{"spec.purpose: Forbidden"}},
		{"create against both", gadget("measures", 7), nil, byHand,
			[]string{"spec.precision: Invalid value", "spec.purpose: Forbidden"}},
		{"update", gadget("measures", 6), gadget("measures", 5), nil, nil},
		{"update against a tag", gadget("measures", 7), gadget("measures", 5), nil,
			[]string{"spec.precision: Invalid value"}},
		{"update against a rule written by hand", gadget("measures", 6), gadget("measures", 5), byHand,
			[]string{"spec.purpose: Forbidden"}},
		// The object was stored before the check existed.
		{"update elsewhere", gadget("weighs", 7), gadget("measures", 7), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var old runtime.Object
			if tc.old != nil {
				old = tc.old
			}
			var got []string
			for _, err := range newBase().Enforce(requestContext(t), tc.obj, old, tc.handwritten) {
				got = append(got, fmt.Sprintf("%s: %s", err.Field, err.Type))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestErrorWithoutValue: an error of +k8s:immutable, which has no value, does not show null.
func TestErrorWithoutValue(t *testing.T) {
	immutable := field.ErrorList{field.Invalid(field.NewPath("spec", "purpose"), nil, "field is immutable")}
	got := newBase().Enforce(requestContext(t), gadget("measures", 6), gadget("weighs", 6), immutable)
	if want := "spec.purpose: Invalid value: field is immutable"; len(got) != 1 || got[0].Error() != want {
		t.Errorf("errors: got %v, want %s", got, want)
	}
}

// TestEnforceWithoutVersion: a context without the version of the request causes an internal
// error.
func TestEnforceWithoutVersion(t *testing.T) {
	got := newBase().Enforce(t.Context(), gadget("measures", 6), nil, nil)
	if len(got) != 1 || got[0].Type != field.ErrorTypeInternal {
		t.Errorf("errors of a valid object without a request: got %v, want one internal error", got)
	}
}

func requestContext(t *testing.T) context.Context {
	t.Helper()
	gv := v1.SchemeGroupVersion
	return genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version, Resource: "gadgets",
	})
}

// TestResetFields: ResetFields returns the fields for all served versions and no others.
func TestResetFields(t *testing.T) {
	base := newBase()
	added := schema.GroupVersion{Group: workshop.GroupName, Version: "v99"}
	base.AddKnownTypes(added, &v1.Gadget{})
	versions := append(slices.Clone(install.GroupVersions()), added)
	utilruntime.Must(base.SetVersionPriority(versions...))
	got := base.ResetFields("status", "metadata")
	want := fieldpath.NewSet(fieldpath.MakePathOrDie("status"), fieldpath.MakePathOrDie("metadata"))
	for _, gv := range versions {
		set := got[fieldpath.APIVersion(gv.String())]
		if set == nil || !set.Equals(want) {
			t.Errorf("reset fields of %s: got %v, want %s", gv, set, want)
		}
	}
	if len(got) != len(versions) {
		t.Errorf("reset fields: got %d versions, want %d", len(got), len(versions))
	}
}

// TestManyErrors: Enforce returns the first errors with short texts and the number of the others,
// and 100,000 errors do not take much longer.
func TestManyErrors(t *testing.T) {
	b := newBase()
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: workshop.GroupName, APIVersion: "v1", Resource: "gadgets",
	})
	long := strings.Repeat("<", 1<<20)
	var errs field.ErrorList
	for i := range 100_000 {
		errs = append(errs, field.Invalid(field.NewPath("a").Index(i), long, ""))
	}
	got := b.Enforce(ctx, gadget("p", 1), nil, errs)
	want := `a[0]: Invalid value: "` + long[:maxValue] + `... (1048576 bytes)"`
	last := got[len(got)-1].Error()
	if len(got) != maxErrors+1 || last != "a[99]: Forbidden: there are 99900 more errors" || got[0].Error() != want {
		t.Errorf("got %d errors, the last %q; want the first 100, and how many more", len(got), last)
	}
	for _, err := range []*field.Error{
		field.Invalid(field.NewPath("a"), []byte(long), ""),
		field.Invalid(field.NewPath("a"), &long, ""),
		field.Invalid(field.NewPath("a"), []string{long}, ""),
		field.Invalid(field.NewPath("a"), gadget(long, 1), ""),
		field.Invalid(field.NewPath("a").Key(long), 1, long),
	} {
		if shorten(err); len(err.Error()) > 3*maxValue {
			t.Errorf("%T: the error has %d bytes, want at most %d", err.BadValue, len(err.Error()), 3*maxValue)
		}
	}
}
