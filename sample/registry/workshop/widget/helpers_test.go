// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"example.com/extension-apiserver/pkg/registry/subresource"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	subresource.AddScaleToScheme(scheme)
	utilruntime.Must(install.AddToScheme(scheme))
	utilruntime.Must(validation.AddToScheme(scheme))
	utilruntime.Must(addSelectableFields(scheme))
	return scheme
}

// requestContext is that of a request in the version: the generated rules run on the version of the request.
func requestContext(t *testing.T, gv schema.GroupVersion, subresource string) context.Context {
	t.Helper()
	ctx := genericapirequest.WithNamespace(t.Context(), "demo")
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version, Resource: "widgets",
		Subresource: subresource,
	})
}

// eachVersion runs the test for requests in each served version: one whose rules are missing would be a way around
// them. in translates the names of fields, which are those of v1, to the version.
func eachVersion(t *testing.T, subresource string,
	test func(t *testing.T, ctx context.Context, in func([]string) []string)) {
	t.Helper()
	for _, gv := range install.GroupVersions() {
		t.Run(gv.Version, func(t *testing.T) {
			test(t, requestContext(t, gv, subresource), func(problems []string) []string {
				var out []string
				for _, problem := range problems {
					if renamed, ok := renamedFields[gv]; ok {
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

// renamedFields lists, for versions unlike v1, how they name its fields.
var renamedFields = map[schema.GroupVersion]*strings.Replacer{
	v1alpha1.SchemeGroupVersion: strings.NewReplacer(
		"spec.model", "spec.design", "spec.grade", "spec.quality", "spec.replicas", "spec.scale.desired",
		"spec.maxReplicas", "spec.scale.limit",
		"spec.parts[0].quantity", "spec.parts[0].count", "spec.parts[0].material",
		"metadata.annotations["+v1alpha1.MaterialPrefix+"screw]"),
}

// stored returns a valid widget as the store has it: defaulted, with the metadata that the server sets.
func stored() *workshop.Widget {
	return &workshop.Widget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: "w", UID: "7", ResourceVersion: "5", Generation: 3,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"},
			Finalizers:      []string{"example.com/f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "8"}},
		},
		Spec: workshop.WidgetSpec{
			Model: "pendulum", Grade: workshop.WidgetGradeStandard, Replicas: new(int32(2)), MaxReplicas: new(int32(5)),
			Parts: []workshop.WidgetPart{{Name: "screw", Quantity: new(int32(12)), Material: "steel"}},
		},
		Status: workshop.WidgetStatus{ObservedGeneration: 2, Replicas: 2, ReadyReplicas: 1, Selector: "a=b"},
	}
}

// changed returns a stored widget with a change.
func changed(change func(*workshop.Widget)) *workshop.Widget {
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
