// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// structField is a field of a struct as JSON and the merge of a patch see it.
type structField struct {
	typ reflect.Type
	// replace is true if the value of a patch replaces the object's value.
	replace bool
	listMeta
}

// listMeta describes how lists are merged.
type listMeta struct {
	// merge is true if elements are merged. They are identified by the field key, or by their
	// value if key is empty.
	merge bool
	key   string
}

var fieldsByType sync.Map // reflect.Type to map[string]structField

// fieldsOf returns the fields of a struct by their JSON names, including the fields of embedded
// structs, as the library's converter finds them. It is safe for concurrent use.
func fieldsOf(t reflect.Type) map[string]structField {
	if fields, ok := fieldsByType.Load(t); ok {
		return fields.(map[string]structField)
	}
	fields := map[string]structField{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.PkgPath != "" && !f.Anonymous, name == "-" && options == "":
			continue
		case name == "" && f.Anonymous && element(f.Type).Kind() == reflect.Struct:
			maps.Copy(fields, fieldsOf(element(f.Type)))
			continue
		case name == "":
			name = f.Name
		}
		strategies := strings.Split(f.Tag.Get("patchStrategy"), ",")
		fields[name] = structField{
			typ:      f.Type,
			replace:  slices.Contains(strategies, "replace"),
			listMeta: listMeta{merge: slices.Contains(strategies, "merge"), key: f.Tag.Get("patchMergeKey")},
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}
