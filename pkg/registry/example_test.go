// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Clients can select gadgets by their purpose. The storage of the kind calls its field "purpose".
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
