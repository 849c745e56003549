// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The directives of a strategic merge patch. $setElementOrder and $deleteFromPrimitiveList are
// followed by a slash and the name of a list.
const (
	patchDirective      = "$patch"
	retainKeysDirective = "$retainKeys"
	orderDirective      = "$setElementOrder"
	deleteDirective     = "$deleteFromPrimitiveList"
)

// isDirective reports whether the library treats the key of an object as a directive.
func isDirective(key string) bool {
	return key == patchDirective || key == retainKeysDirective || strings.HasPrefix(key, orderDirective) ||
		strings.HasPrefix(key, deleteDirective)
}

// directives checks the directives in an object that has these fields or, if fields is nil, is a
// Go map. It returns true if the object is merged, and false if it replaces another.
func (c *checker) directives(object map[string]any, fields map[string]structField) (merge bool) {
	if _, ok := object[patchDirective]; ok {
		c.patchDirective(object)
		return false
	}
	for key, v := range object {
		if !strings.HasPrefix(key, "$") || c.full() {
			continue
		}
		c.enter(step{name: key})
		ordered, isOrder := strings.CutPrefix(key, orderDirective+"/")
		deleted, isDelete := strings.CutPrefix(key, deleteDirective+"/")
		switch {
		case key == retainKeysDirective:
			c.retainKeys(v, object)
		case isOrder:
			if f, ok := c.listField(fields, ordered); ok {
				c.order(v, f, object, ordered)
			}
		case isDelete:
			if f, ok := c.listField(fields, deleted); ok {
				c.deletedElements(v, f, object[deleted], deleted)
			}
		case isDirective(key), fields != nil && fields[key].typ == nil:
			c.wrong(key, "unknown directive")
		}
		c.leave()
	}
	return true
}

// patchDirective checks the $patch directive of an object, or of a list element, and reports
// whether it is "replace".
func (c *checker) patchDirective(object map[string]any) (replace bool) {
	directive := object[patchDirective]
	if directive != "replace" && directive != "delete" {
		c.enter(step{name: patchDirective})
		c.add(field.NotSupported(c.fieldPath(), printable(directive), []string{"replace", "delete"}))
		c.leave()
	}
	return directive == "replace"
}

// retainKeys checks the list of the only keys that the object keeps. The list must contain all
// keys of the patch.
func (c *checker) retainKeys(v any, object map[string]any) {
	list, ok := v.([]any)
	if !ok {
		c.wrong(v, "must be a list of keys")
		return
	}
	kept := map[string]bool{}
	for _, key := range list {
		name, ok := key.(string)
		if !ok {
			c.wrong(key, "must be a list of keys")
			return
		}
		kept[name] = true
	}
	for key, v := range object {
		if v != nil && !isDirective(key) && !kept[key] {
			c.wrong(v, fmt.Sprintf("must have all keys of the patch, such as %q", short(key)))
			return
		}
	}
}

// listField returns a field whose elements are objects with a merge key, or scalars. For any other
// field, it adds an error and returns false.
func (c *checker) listField(fields map[string]structField, name string) (structField, bool) {
	f := fields[name]
	if f.typ != nil {
		if t := element(f.typ); t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !custom(t) {
			elem := element(t.Elem())
			if !custom(elem) && elem.Kind() != reflect.Slice && isObject(elem) == (f.key != "") {
				f.typ = elem
				return f, true
			}
		}
	}
	c.wrong(name, "names no field that is a list of scalars, or of objects with a merge key")
	return f, false
}

// order checks the order of the elements of a list. It must contain the elements of the patch in
// the same order.
func (c *checker) order(v any, f structField, object map[string]any, name string) {
	order, ok := v.([]any)
	if !ok {
		c.wrong(v, "must be a list")
		return
	}
	if !c.compare(order) {
		return
	}
	for i, v := range order {
		if c.full() {
			return
		}
		c.enter(step{index: i})
		ok = c.identity(v, f.typ, f.key) && ok
		c.leave()
	}
	v, found := object[name]
	if !ok || !found {
		return
	}
	list, ok := v.([]any)
	switch {
	case !ok:
		c.wrong(v, fmt.Sprintf("%s must be a list, or left out", name))
	case len(order) > 0 && !inOrder(list, order, f.key):
		c.wrong(v, fmt.Sprintf("must have the elements of %s, in the same order", name))
	}
}

// inOrder reports whether the elements of list without a directive appear in order one after the
// other. The elements of list have not been checked yet, the elements of order have.
func inOrder(list, order []any, key string) bool {
	next := 0
	for _, v := range list {
		object, _ := v.(map[string]any)
		if _, ok := object[patchDirective]; ok {
			continue
		}
		if key != "" {
			v = object[key]
		}
		for next < len(order) && (!isScalar(v) || v != keyOf(order[next], key)) {
			next++
		}
		if next == len(order) {
			return false
		}
		next++
	}
	return true
}

func keyOf(v any, key string) any {
	if object, ok := v.(map[string]any); ok {
		return object[key]
	}
	return v
}

// deletedElements checks the elements that are removed from a list of scalars, and the elements
// that the patch has for the same list: the library adds and removes elements in no particular
// order.
func (c *checker) deletedElements(v any, f structField, sent any, name string) {
	list, ok := v.([]any)
	added, _ := sent.([]any)
	switch {
	case !ok || f.key != "":
		c.wrong(v, "must be a list of scalars")
		return
	case len(added) > 0 && !f.merge:
		c.wrong(v, fmt.Sprintf("%s replaces the list; leave one of them out", name))
		return
	}
	stays := map[any]bool{}
	for _, v := range added {
		if isScalar(v) {
			stays[v] = true
		}
	}
	for i, v := range list {
		if c.full() {
			return
		}
		c.enter(step{index: i})
		if c.identity(v, f.typ, "") && stays[v] {
			c.wrong(v, fmt.Sprintf("is in %s, too", name))
		}
		c.leave()
	}
}

// mergedElement checks an element of a list that is merged by a key, or as a set of scalars if key
// is empty.
func (c *checker) mergedElement(v any, elem reflect.Type, key string) {
	object, _ := v.(map[string]any)
	if _, ok := object[patchDirective]; ok && key != "" {
		if c.patchDirective(object) {
			if len(object) > 1 {
				c.wrong(v, "must have no other key: the elements beside it replace the list")
			}
			return
		}
		c.identity(v, elem, key)
		return
	}
	if !c.identity(v, elem, key) || !isObject(elem) {
		return
	}
	c.fits(v, elem, listMeta{}, true)
}

// identity reports whether v can be compared with the elements of the object's list, by a key or
// as a scalar. It must have the type that the library uses for the object's own elements: an
// integer is not a float.
func (c *checker) identity(v any, elem reflect.Type, key string) bool {
	object, isMap := v.(map[string]any)
	if !isMap {
		if isObject(elem) {
			c.wrong(v, "must be an object")
			return false
		}
		return c.comparable(v, elem)
	}
	if key == "" {
		c.wrong(v, "cannot be merged: elements have no merge key")
		return false
	}
	c.enter(step{name: key})
	defer c.leave()
	v, ok := object[key]
	if !ok {
		c.add(field.Required(c.fieldPath(), "is the merge key"))
		return false
	}
	switch {
	case custom(elem):
		elem = nil
	case elem.Kind() == reflect.Map:
		elem = element(elem.Elem())
	case elem.Kind() == reflect.Struct && fieldsOf(elem)[key].typ != nil:
		elem = element(fieldsOf(elem)[key].typ)
	default:
		c.wrong(v, "must be an element of another kind")
		return false
	}
	return c.comparable(v, elem)
}

// comparable reports whether v is a scalar that can be compared with scalars of type t, which may
// be nil.
func (c *checker) comparable(v any, t reflect.Type) bool {
	detail := ""
	_, isInt := v.(int64)
	switch {
	case !isScalar(v):
		detail = "must be a string, a number or a boolean"
	case t == nil:
	case custom(t):
		if err := convert(v, t); err != nil {
			detail = err.Error()
		}
	case isInteger(t) && !isInt:
		detail = "must be an integer without a point, in the range of " + t.Kind().String()
	case isFloat(t) && isInt:
		detail = "must be a number with a point"
	default:
		detail = c.scalar(v, t)
	}
	if detail != "" {
		c.wrong(v, detail)
	}
	return detail == ""
}

// isObject reports whether values of a type are objects whose fields can be merged.
func isObject(t reflect.Type) bool {
	return (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) && !custom(t)
}

func isScalar(v any) bool {
	switch v.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}
