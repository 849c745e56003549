// SPDX-License-Identifier: Apache-2.0

package workshop

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group that this server serves.
const GroupName = "workshop.example.com"

// SchemeGroupVersion is the hub: it is never served and never stored.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}

var (
	// SchemeBuilder collects what the kinds' files register; each kind registers itself, so that removing its file
	// removes it whole.
	SchemeBuilder runtime.SchemeBuilder
	// AddToScheme adds every internal kind of the group to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name with the group, for errors and storage.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func register(kinds ...runtime.Object) {
	SchemeBuilder.Register(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(SchemeGroupVersion, kinds...)
		return nil
	})
}
