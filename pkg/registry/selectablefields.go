// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddSelectableFields lets clients select objects of the kind by the given fields, in addition to
// metadata.name and metadata.namespace. fields maps the name of a field in the version to the
// name in the storage of the kind, and must not be empty.
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
