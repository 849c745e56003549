// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/extension-apiserver/pkg/apis/identity"
)

// A client registers the kind in the group that it found it in.
func ExampleAddToScheme() {
	scheme := runtime.NewScheme()
	identity.AddToScheme(scheme, schema.GroupVersion{Group: "workshop.example.com", Version: "v1"})
	obj, err := scheme.New(schema.GroupVersionKind{Group: "workshop.example.com", Version: "v1",
		Kind: "IdentityReview"})
	fmt.Printf("%T %v\n", obj, err)
	// Output: *identity.IdentityReview <nil>
}
