// SPDX-License-Identifier: Apache-2.0

package grades

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func namespace(name, grades string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{Annotation: grades}}}
}

func graded(namespace, grade string) *v1.Widget {
	return &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: namespace},
		Spec: v1.WidgetSpec{Grade: v1.WidgetGrade(grade)}}
}

// attributes are those of the creation of a Widget, or of an update if there is an old one.
func attributes(resource, subresource string, widget, old *v1.Widget) admission.Attributes {
	operation, stored := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, stored = admission.Update, old
	}
	return admission.NewAttributesRecord(widget, stored, v1.SchemeGroupVersion.WithKind("Widget"), widget.Namespace,
		widget.Name, v1.SchemeGroupVersion.WithResource(resource), subresource, operation, nil, false, nil)
}

// TestValidate runs the plugin on Namespaces that the informer has, and on "new", which only
// kube-apiserver has.
func TestValidate(t *testing.T) {
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, ns := range []*corev1.Namespace{namespace("one", "Standard"), namespace("two", "Standard, Premium"),
		namespace("empty", ""), namespace("none", " ")} {
		if err := known.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlugin(corev1listers.NewNamespaceLister(known),
		fake.NewClientset(namespace("new", "Standard")).CoreV1())

	for _, c := range []struct {
		name, namespace, grade string
		old                    string // grade of the stored Widget, for an update
		want                   string
	}{
		{name: "listed", namespace: "one", grade: "Standard"},
		{name: "not listed", namespace: "one", grade: "Premium",
			want: `widgets.workshop.example.com "w" is forbidden: spec.grade is Premium, ` +
				`but the namespace one permits Standard`},
		{name: "second of a list with a space", namespace: "two", grade: "Premium"},
		{name: "part of a name", namespace: "one", grade: "Stand",
			want: `widgets.workshop.example.com "w" is forbidden: spec.grade is Stand, ` +
				`but the namespace one permits Standard`},
		{name: "empty annotation", namespace: "empty", grade: "Premium"},
		{name: "annotation without a grade", namespace: "none", grade: "Premium",
			want: `widgets.workshop.example.com "w" is forbidden: spec.grade is Premium, ` +
				`but the namespace none permits  `},
		{name: "namespace that the informer does not know", namespace: "new", grade: "Premium",
			want: `widgets.workshop.example.com "w" is forbidden: spec.grade is Premium, ` +
				`but the namespace new permits Standard`},
		{name: "namespace that does not exist", namespace: "gone", grade: "Premium",
			want: `namespaces "gone" not found`},
		{name: "update to a grade that is not listed", namespace: "one", old: "Standard", grade: "Premium",
			want: `widgets.workshop.example.com "w" is forbidden: spec.grade is Premium, ` +
				`but the namespace one permits Standard`},
		{name: "update that keeps a grade that is not listed", namespace: "one", old: "Premium", grade: "Premium"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var old *v1.Widget
			if c.old != "" {
				old = graded(c.namespace, c.old)
			}
			err := p.Validate(t.Context(), attributes("widgets", "", graded(c.namespace, c.grade), old), nil)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		p := newPlugin(corev1listers.NewNamespaceLister(known), nil)
		p.SetReadyFunc(func() bool { return false })
		if err := p.Validate(t.Context(), attributes("widgets", "", graded("one", "Standard"), nil),
			nil); !apierrors.IsForbidden(err) {
			t.Errorf("before the Namespaces are known: got %v, want it forbidden", err)
		}
	})
	for _, other := range []struct{ resource, subresource string }{{"gadgets", ""}, {"widgets", "status"}} {
		if err := p.Validate(t.Context(), attributes(other.resource, other.subresource, graded("one", "Premium"),
			graded("one", "Standard")), nil); err != nil {
			t.Errorf("%s/%s: got %v, want no error", other.resource, other.subresource, err)
		}
	}
}
