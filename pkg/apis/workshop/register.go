// SPDX-License-Identifier: Apache-2.0

package workshop

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// AddSelectableFields lets clients select objects of the kind by the fields (at least one), beside metadata.name and metadata.namespace. Each
// is given by its name in the version and the one that the storage of the kind has for it.
func AddSelectableFields(scheme *runtime.Scheme, kind schema.GroupVersionKind, fields map[string]string) error {
	return scheme.AddFieldLabelConversionFunc(kind, func(name, value string) (string, string, error) {
		if internal, ok := fields[name]; ok {
			return internal, value, nil
		}
		internal, value, err := runtime.DefaultMetaV1FieldSelectorConversion(name, value)
		if err != nil {
			return "", "", fmt.Errorf("%w, \"%s\"", err, strings.Join(slices.Sorted(maps.Keys(fields)), `", "`))
		}
		return internal, value, nil
	})
}
