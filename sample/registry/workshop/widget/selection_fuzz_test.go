// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
)

// FuzzWidgetFieldSelector checks that the server rejects a field selector if it contains a field
// name that the version does not have. Any other selector selects exactly the widgets whose
// fields match in that version.
func FuzzWidgetFieldSelector(f *testing.F) {
	for _, selector := range []string{
		"", ",", "metadata.name=w", "metadata.namespace!=demo,metadata.name==w", "spec.model=pendulum",
		"spec.design=pendulum",
		"spec.grade!=Standard", "spec.quality=Standard", "spec.quality=Premium,spec.design=a\\,b\\=c\\\\",
		"spec.model=,spec.grade=",
		"spec.replicas=1", "spec.model", "spec.model=a=b", "=", "!=x", "metadata.name=\\", "spec.model=\xff",
		"metadata.uid=", " spec.grade = Standard ",
	} {
		for version := range widgetVersions() {
			f.Add(uint8(version), selector)
		}
	}
	scheme := newScheme()
	f.Fuzz(func(t *testing.T, version uint8, text string) {
		gv := widgetVersions()[int(version)%len(widgetVersions())]
		parsed, err := fields.ParseSelector(text)
		if err != nil {
			return
		}
		selector, err := parsed.Transform(func(name, value string) (string, string, error) {
			return scheme.ConvertFieldLabel(gv.WithKind("Widget"), name, value)
		})
		unknown := slices.ContainsFunc(parsed.Requirements(),
			func(r fields.Requirement) bool { return !slices.Contains(selectable(gv), r.Field) })
		if unknown != (err != nil) {
			t.Fatalf("%s, %q: got error %v, want one: %t", gv, text, err, unknown)
		}
		if err != nil {
			return
		}
		printed, err := fields.ParseSelector(selector.String())
		if err != nil {
			t.Fatalf("%q is printed as %q, which is none: %v", text, selector, err)
		}
		for _, widget := range candidates(parsed.Requirements()) {
			set := attributes(widget)
			want := seenWith(t, scheme, gv, widget, parsed.Requirements())
			if got, again := selector.Matches(set), printed.Matches(set); got != want || again != want {
				t.Errorf("%s, %q: got %t, and %t for %q, want %t, of the widget with %v", gv, text, got, again,
					selector, want, set)
			}
		}
	})
}

// selectable returns the selectable field names of a version.
func selectable(gv schema.GroupVersion) []string {
	if gv == v1alpha1.SchemeGroupVersion {
		return []string{"metadata.name", "metadata.namespace", "spec.design", "spec.quality"}
	}
	return []string{"metadata.name", "metadata.namespace", "spec.model", "spec.grade"}
}

// candidates returns a stored widget, an empty one, and for up to eight requirements a widget
// with the requirement's value in every field.
func candidates(requirements fields.Requirements) []*v1.Widget {
	widgets := []*v1.Widget{stored(), {}}
	for _, r := range requirements[:min(len(requirements), 8)] {
		widgets = append(widgets, &v1.Widget{
			ObjectMeta: metav1.ObjectMeta{Name: r.Value, Namespace: r.Value},
			Spec:       v1.WidgetSpec{Model: r.Value, Grade: v1.WidgetGrade(r.Value)},
		})
	}
	return widgets
}

// seenWith reports whether the widget matches the requirements when it is converted to the
// version.
func seenWith(t *testing.T, scheme *runtime.Scheme, gv schema.GroupVersion, widget *v1.Widget,
	parsed fields.Requirements) bool {
	t.Helper()
	versioned, err := scheme.ConvertToVersion(widget, gv)
	if err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(parsed, func(r fields.Requirement) bool {
		value, _, err := unstructured.NestedString(content, strings.Split(r.Field, ".")...)
		if err != nil {
			t.Fatal(err)
		}
		return (value == r.Value) != (r.Operator == selection.Equals)
	})
}

// FuzzWidgetLabelSelector checks that a valid label selector can be printed and parsed again, as
// clients, the scale and the continuation of a watch do, and then selects the same objects.
func FuzzWidgetLabelSelector(f *testing.F) {
	for _, selector := range []string{
		"", "a", "!a", "a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b)", "a in ()", "a in (,b)", "a>1", "a<2,a>-1",
		"x.example.com/a=b,!c",
		"a,a", "a=", "a in (b", "=b", "a=b c", "a>x", ",", "!", "a in (in,notin)", "in in (in)", "notin=in",
		" a = b ", "a=\xff",
	} {
		f.Add(selector)
	}
	f.Fuzz(func(t *testing.T, text string) {
		selector, err := labels.Parse(text)
		if err != nil {
			return
		}
		again, err := labels.Parse(selector.String())
		if err != nil {
			t.Fatalf("%q is printed as %q, which is none: %v", text, selector, err)
		}
		requirements, _ := selector.Requirements()
		sets := []labels.Set{nil, {"a": "b"}}
		for _, r := range requirements[:min(len(requirements), 8)] {
			for value := range r.Values() {
				sets = append(sets, labels.Set{r.Key(): value})
			}
			sets = append(sets, labels.Set{r.Key(): ""}, labels.Set{r.Key(): "5"})
		}
		for _, set := range sets {
			if got, want := again.Matches(set), selector.Matches(set); got != want {
				t.Errorf("%q, printed as %q: got %t, want %t, of %v", text, selector, got, want, set)
			}
		}
	})
}
