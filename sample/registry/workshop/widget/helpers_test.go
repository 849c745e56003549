// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/apitesting"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	subresource.AddScaleToScheme(scheme)
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	storageOf(scheme)
	return scheme
}

func storageOf(scheme *runtime.Scheme) map[string]rest.Storage {
	storage, err := Kind.NewStorage(scheme, registry.Unconnected{}, nil)
	utilruntime.Must(err)
	return storage
}

// widgetVersions returns the versions that serve the kind.
func widgetVersions() []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, gv := range install.GroupVersions() {
		if newScheme().Recognizes(gv.WithKind("Widget")) {
			gvs = append(gvs, gv)
		}
	}
	return gvs
}

// attributes returns the selectable fields of a widget.
func attributes(w *v1.Widget) fields.Set {
	set := fields.Set{"metadata.name": w.Name, "metadata.namespace": w.Namespace}
	for path, value := range Kind.SelectableFields {
		set[path] = value(w)
	}
	return set
}

// eachVersion runs the test with the validation of each served version. in translates field names
// from v1 to that version.
func eachVersion(t *testing.T, test func(t *testing.T, rules apitesting.KindRules, in func([]string) []string)) {
	t.Helper()
	for version, rules := range apitesting.Rules(t, Kind.NewStorage, install.AddToScheme, validation.AddToScheme) {
		t.Run(version, func(t *testing.T) {
			test(t, rules, func(problems []string) []string {
				var out []string
				for _, problem := range problems {
					if renamed, ok := renamedFields[version]; ok {
						problem = renamed.Replace(problem)
					}
					out = append(out, problem)
				}
				slices.Sort(out)
				return out
			})
		})
	}
}

// renamedFields maps a version that differs from v1 to a replacer of v1 field names that Paths does
// not have, because they are in a list.
var renamedFields = map[string]*strings.Replacer{
	"v1alpha1": strings.NewReplacer(
		"spec.parts[0].quantity", "spec.parts[0].count", "spec.parts[0].material",
		"metadata.annotations["+v1alpha1.MaterialPrefix+"screw]"),
}

// stored returns a valid widget as it is stored: defaulted, with the metadata that the server
// sets.
func stored() *v1.Widget {
	return &v1.Widget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: "w", UID: "7", ResourceVersion: "5", Generation: 3,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"},
			Finalizers:      []string{"example.com/f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "8"}},
		},
		Spec: v1.WidgetSpec{
			Model: "pendulum", Grade: v1.WidgetGradeStandard, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
			Parts: []v1.WidgetPart{{Name: "screw", Quantity: new(int32(12)), Material: "steel"}},
		},
		Status: v1.WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
}

// changed returns a stored widget with a change.
func changed(change func(*v1.Widget)) *v1.Widget {
	w := stored()
	change(w)
	return w
}

// problems lists errors as "field: type", sorted.
func problems(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, fmt.Sprintf("%s: %s", err.Field, err.Type))
	}
	slices.Sort(out)
	return out
}
