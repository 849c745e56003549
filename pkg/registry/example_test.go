// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// A Kind is described by its Go type and a value. Add its method NewStorage to the Kinds of an
// apiserver.Group.
func ExampleKind() {
	kind := registry.Kind[*v1.Gadget]{
		ClusterScoped: true,
		ShortNames:    []string{"gd"},
		Columns: []registry.Column[*v1.Gadget]{
			{Name: "Purpose", Value: func(g *v1.Gadget) any { return g.Spec.Purpose }},
		},
		SelectableFields: map[string]func(*v1.Gadget) string{
			"spec.purpose": func(g *v1.Gadget) string { return g.Spec.Purpose },
		},
		Validate: func(_ context.Context, g, old *v1.Gadget) field.ErrorList {
			if old == nil && g.Spec.Purpose == g.Name {
				return field.ErrorList{field.Invalid(field.NewPath("spec", "purpose"), g.Spec.Purpose,
					"must differ from the name")}
			}
			return nil
		},
	}
	scheme := runtime.NewScheme()
	if err := install.AddToScheme(scheme); err != nil {
		fmt.Println(err)
	}
	storage, err := kind.NewStorage(scheme, registry.Unconnected{}, nil)
	fmt.Println(slices.Collect(maps.Keys(storage)), err)
	// Output: [gadgets] <nil>
}

// Clients can select gadgets by their purpose. The storage of the kind names the field "purpose".
func ExampleAddSelectableFields() {
	scheme := runtime.NewScheme()
	kind := v1.SchemeGroupVersion.WithKind("Gadget")
	if err := registry.AddSelectableFields(scheme, kind, map[string]string{"spec.purpose": "purpose"}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(scheme.ConvertFieldLabel(kind, "spec.purpose", "measures"))
	_, _, err := scheme.ConvertFieldLabel(kind, "spec.precision", "2")
	fmt.Println(err)
	// Output:
	// purpose measures <nil>
	// "spec.precision" is not a known field selector: only "metadata.name", "metadata.namespace", "spec.purpose"
}
