// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// pathIn returns the path of a hub field in another version.
func (d *description[T]) pathIn(version, path string) string {
	longest := ""
	for field := range d.Paths[version] {
		if rest, ok := strings.CutPrefix(path, field); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') &&
			len(field) > len(longest) {
			longest = field
		}
	}
	return d.Paths[version][longest] + path[len(longest):]
}

// typeIn returns the Go type of the kind in a version.
func (d *description[T]) typeIn(gv schema.GroupVersion) reflect.Type {
	return d.scheme.AllKnownTypes()[gv.WithKind(d.gvk.Kind)]
}

// fieldOf returns the index of the struct field with the given JSON name, or nil if there is
// none.
func fieldOf(typ reflect.Type, name string) []int {
	for i := range typ.NumField() {
		f := typ.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.IsExported() && tag == name:
			return f.Index
		case f.Anonymous && tag == "" && options == "inline" && f.Type.Kind() == reflect.Struct:
			if index := fieldOf(f.Type, name); index != nil {
				return append([]int{i}, index...)
			}
		}
	}
	return nil
}

// fieldAt returns the type of the field at a path such as spec.replicas, or nil if it does not
// exist.
func fieldAt(typ reflect.Type, path string) reflect.Type {
	for name := range strings.SplitSeq(path, ".") {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return nil
		}
		index := fieldOf(typ, name)
		if index == nil {
			return nil
		}
		typ = typ.FieldByIndex(index).Type
	}
	return typ
}

// valueAt returns the field at a path that fieldAt finds. If a pointer on the path is nil,
// valueAt allocates it if create is true, and otherwise returns an invalid value.
func valueAt(value reflect.Value, path string, create bool) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		for value.Kind() == reflect.Pointer {
			if value.IsNil() {
				if !create {
					return reflect.Value{}
				}
				value.Set(reflect.New(value.Type().Elem()))
			}
			value = value.Elem()
		}
		value = value.FieldByIndex(fieldOf(value.Type(), name))
	}
	return value
}

// topLevelFields returns the JSON names of the top-level fields of a kind, without apiVersion and
// kind.
func topLevelFields(scheme *runtime.Scheme, gvk schema.GroupVersionKind) []string {
	var names []string
	typ := scheme.AllKnownTypes()[gvk]
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// selectable maps the selectable fields of a version to their hub paths, by their paths in the
// version.
func (d *description[T]) selectable(gv schema.GroupVersion) map[string]string {
	names := map[string]string{}
	for path := range d.SelectableFields {
		if in := d.pathIn(gv.Version, path); fieldAt(d.typeIn(gv), in) != nil {
			names[in] = path
		}
	}
	return names
}

func (d *description[T]) addSelectableFields() error {
	for _, gv := range d.versions {
		if names := d.selectable(gv); len(names) > 0 {
			if err := AddSelectableFields(d.scheme, gv.WithKind(d.gvk.Kind), names); err != nil {
				return err
			}
		}
	}
	return nil
}

// attributes returns the labels and fields by which an object can be selected.
func (d *description[T]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("select %s: expected %s, found %T", d.resource, reflect.TypeFor[T](), obj)
	}
	set := make(fields.Set, len(d.SelectableFields)+2)
	for path := range d.SelectableFields {
		set[path] = d.valueOf(object, path)
	}
	set["metadata.name"] = object.GetName()
	if !d.ClusterScoped {
		set["metadata.namespace"] = object.GetNamespace()
	}
	return object.GetLabels(), set, nil
}

// valueOf returns the value of a selectable field, or an empty value if its function panics. The
// watch cache calls it for stored objects, where a panic would stop the process. Validation calls
// the function directly, so that the panic fails the request that stores the object.
func (d *description[T]) valueOf(object T, path string) (value string) {
	defer func() {
		if reason := recover(); reason != nil {
			value = ""
			utilruntime.HandleError(fmt.Errorf("select %s %s by %s: the function panics: %v", d.resource,
				object.GetName(), path, reason))
		}
	}()
	return d.SelectableFields[path](object)
}

// checkPaths returns an error for each path that does not exist in the hub or in the other
// version.
func (d *description[T]) checkPaths() []error {
	var problems []error
	hub := reflect.TypeFor[T]().Elem()
	for _, path := range slices.Sorted(maps.Keys(d.SelectableFields)) {
		switch {
		case d.SelectableFields[path] == nil:
			problems = append(problems, fmt.Errorf("selectable field %s: there is no function", path))
		case fieldAt(hub, path) == nil:
			problems = append(problems, fmt.Errorf("selectable field %s: %s has no such field", path, d.gvk.Version))
		}
	}
	for _, version := range slices.Sorted(maps.Keys(d.Paths)) {
		paths, gv := d.Paths[version], schema.GroupVersion{Group: d.gvk.Group, Version: version}
		if !slices.Contains(d.versions, gv) || version == d.gvk.Version {
			problems = append(problems, fmt.Errorf("paths of %s: expected another version of the kind, such as those "+
				"in %v, and not the hub, %s", version, d.versions, d.gvk.Version))
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			in := paths[path]
			if fieldAt(hub, path) == nil {
				problems = append(problems, fmt.Errorf("paths of %s: %s has no field %s", version, d.gvk.Version, path))
			}
			if fieldAt(d.typeIn(gv), in) == nil {
				problems = append(problems, fmt.Errorf("paths of %s: it has no field %s", version, in))
			}
		}
	}
	return problems
}
