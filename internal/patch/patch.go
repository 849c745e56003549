// SPDX-License-Identifier: Apache-2.0

// Package patch checks strategic merge patches and apply configurations against the Go type of the
// object that they change, and determines the cost of JSON patches.
//
// The library that merges them (k8s.io/apimachinery/pkg/util/strategicpatch) trusts them: it
// panics on merge keys that cannot be compared, returns errors without a status for unknown
// directives, and truncates integers to the size of their field. Strategic and Apply take the
// result of the library's own decoder, and return no errors for a patch whose content matches.
// They report at most ten errors and change nothing.
package patch

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

const (
	// maxErrors, maxText and maxMessage, in bytes, and maxSteps, at each end of a path, limit the
	// response to a patch in which nothing matches.
	maxErrors  = 10
	maxText    = 128
	maxMessage = 1024
	maxSteps   = 16
	// maxMerged is the maximum number of elements in a merged list, or in its order. The library
	// compares each with each other, and with the elements of the object. For several lists, the
	// sum of the squares of their lengths is therefore limited to the square of maxMerged.
	maxMerged = 2000
)

// Strategic checks a strategic merge patch of an object of the struct type t, and returns its
// cost. body is the JSON from which patch was decoded. Unknown fields are left to the library,
// which ignores them, warns of them or rejects them, as the request's fieldValidation specifies.
func Strategic(patch map[string]any, body []byte, t reflect.Type) (Cost, field.ErrorList) {
	c := checker{body: body}
	c.structure(patch, t, true)
	return Cost{Merges: c.merges}, c.errs
}

// Apply checks an apply configuration of an object of the struct type t: each value must have the
// kind and the range of its field. Fields, keys and duplicates are left to the library. body is
// the YAML or JSON from which the YAML parser decoded configuration; the parser rounds fractions
// to integers. body is nil if another decoder was used.
func Apply(configuration map[string]any, body []byte, t reflect.Type) field.ErrorList {
	c := checker{body: body, yaml: true}
	c.structure(configuration, t, false)
	return c.errs
}

// checker checks a patch and tracks the current path in it.
type checker struct {
	path []step
	errs field.ErrorList
	// body is the text from which the patch was decoded, or nil. yaml is true if the YAML parser
	// decoded it. rounded describes the errors of the integers that stand for other numbers in
	// body, once they are known.
	body    []byte
	yaml    bool
	rounded map[float64]string
	// compared is the number of comparisons of elements of the patch.
	compared int
	// merges is true after a list is merged.
	merges bool
}

// step leads to a field, to a key of a Go map, or to a list element.
type step struct {
	name  string
	key   bool
	index int
}

func (c *checker) enter(s step) { c.path = append(c.path, s) }
func (c *checker) leave()       { c.path = c.path[:len(c.path)-1] }
func (c *checker) full() bool   { return len(c.errs) == maxErrors }

// wrong adds an error for the value v at the current path.
func (c *checker) wrong(v any, detail string) {
	if c.full() {
		return // a path can be long
	}
	c.add(field.TypeInvalid(c.fieldPath(), printable(v), short(detail)))
}

func (c *checker) add(err *field.Error) {
	if !c.full() {
		c.errs = append(c.errs, err)
	}
}

func (c *checker) fieldPath() *field.Path {
	var path *field.Path
	for i, s := range c.path {
		if i >= maxSteps && i < len(c.path)-maxSteps {
			if i == maxSteps {
				path = path.Child("...")
			}
			continue
		}
		switch {
		case s.key:
			path = path.Key(short(s.name))
		case s.name == "":
			path = path.Index(s.index)
		case path == nil:
			path = field.NewPath(short(s.name))
		default:
			path = path.Child(short(s.name))
		}
	}
	return path
}

// fits adds an error if v cannot be a value of type t. If merge is true, v is merged into a value
// of the object. Otherwise it replaces the value, and directives have no meaning in it.
func (c *checker) fits(v any, t reflect.Type, m listMeta, merge bool) {
	if v == nil || c.full() {
		return
	}
	t = element(t)
	if object, ok := v.(map[string]any); ok && merge && (custom(t) || t.Kind() == reflect.Interface) {
		merge = c.directives(object, nil)
	}
	if custom(t) {
		c.converts(v, t)
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		object, ok := v.(map[string]any)
		switch {
		case !ok:
			c.wrong(v, "must be an object")
		case t.Kind() == reflect.Map:
			c.mapping(object, t.Elem(), merge)
		default:
			c.structure(object, t, merge)
		}
	case reflect.Slice:
		c.slice(v, t, m, merge)
	case reflect.Interface:
		c.exact(v)
	default:
		if detail := c.scalar(v, t); detail != "" {
			c.wrong(v, detail)
		}
	}
}

// structure checks the fields of a struct and its directives.
func (c *checker) structure(object map[string]any, t reflect.Type, merge bool) {
	fields := fieldsOf(t)
	if merge {
		merge = c.directives(object, fields)
	}
	for name, v := range object {
		if f, ok := fields[name]; ok && !c.full() {
			c.enter(step{name: name})
			c.fits(v, f.typ, f.listMeta, merge && !f.replace)
			c.leave()
		}
	}
}

// mapping checks the values of a Go map. The library reads directives in it as if it were a struct
// without fields.
func (c *checker) mapping(object map[string]any, elem reflect.Type, merge bool) {
	merged := merge && c.directives(object, nil)
	for key, v := range object {
		if c.full() {
			return
		}
		if merge && key == patchDirective || merged && isDirective(key) {
			continue
		}
		c.enter(step{name: key, key: true})
		c.fits(v, elem, listMeta{}, false)
		c.leave()
	}
}

// slice checks a list, or bytes, which are encoded as a base64 string.
func (c *checker) slice(v any, t reflect.Type, m listMeta, merge bool) {
	if _, ok := v.(string); ok && t.Elem().Kind() == reflect.Uint8 {
		c.converts(v, t)
		return
	}
	list, ok := v.([]any)
	if !ok {
		c.wrong(v, "must be a list")
		return
	}
	switch {
	case merge && m.merge && m.key == "" && isObject(element(t.Elem())):
		c.wrong(v, "elements have no merge key; send a merge patch, a JSON patch or an apply configuration")
		return
	case merge && m.merge && !c.compare(list):
		return
	}
	for i, v := range list {
		if c.full() {
			return
		}
		c.enter(step{index: i})
		if merge && m.merge {
			c.mergedElement(v, element(t.Elem()), m.key)
		} else {
			c.fits(v, t.Elem(), listMeta{}, false)
		}
		c.leave()
	}
}

// compare adds an error, and returns false, if a list has too many elements to compare each with
// each other, together with the previous lists.
func (c *checker) compare(list []any) bool {
	c.merges = true
	if c.compared += min(len(list), maxMerged+1) * min(len(list), maxMerged+1); c.compared > maxMerged*maxMerged {
		c.wrong(list, fmt.Sprintf(
			"the lists that are merged and their orders have too many elements, one alone may have %d; "+
				"send a merge patch, a JSON patch or an apply configuration", maxMerged))
		return false
	}
	return true
}

// converts adds an error if v cannot be decoded into t, which is bytes or a type that decodes JSON
// itself.
func (c *checker) converts(v any, t reflect.Type) {
	c.exact(v)
	if detail := c.rounding(v); detail != "" && t == intOrStringType {
		c.wrong(v, detail)
		return
	}
	// The library converts numbers to such a type itself.
	if _, isText := v.(string); !isText && isScalar(v) && (isInteger(t) || isFloat(t)) {
		if detail := c.scalar(v, t); detail != "" {
			c.wrong(v, detail)
			return
		}
	}
	if text, ok := v.(string); ok && t == quantityType && hugeExponent.MatchString(text) {
		c.wrong(v, "has an exponent that is too large")
		return
	}
	if err := convert(v, t); err != nil {
		c.wrong(v, err.Error())
	}
}

// hugeExponent matches exponents for which a Quantity computes for hours.
var (
	hugeExponent    = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
)

// convert decodes v as the library does.
func convert(v any, t reflect.Type) error {
	into := reflect.New(t)
	if entry := value.TypeReflectEntryOf(t); entry.CanConvertFromUnstructured() {
		return entry.FromUnstructured(reflect.ValueOf(v), into.Elem())
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into.Interface())
}

// custom reports whether a type decodes JSON itself, as Quantity, Time and RawExtension do.
func custom(t reflect.Type) bool { return value.TypeReflectEntryOf(t).CanConvertFromUnstructured() }

// element returns the type that a chain of pointers points to.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// printable returns a value for an error message: a scalar, or the kind of any other value.
func printable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "list"
	case string:
		return short(v)
	}
	return v
}

func short(text string) string { return cut(text, maxText) }

// Message shortens the message of an error to about 1 KiB.
func Message(text string) string { return cut(text, maxMessage) }

func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size], "") + "..."
}

// ShortTexts replaces each string and each key in content that is longer than 128 bytes by a short
// one. Different strings stay different. It modifies content and returns it, or its replacement.
func ShortTexts(content any) any {
	switch content := content.(type) {
	case map[string]any:
		for key, v := range content {
			if len(key) > maxText {
				delete(content, key)
			}
			content[digest(key)] = ShortTexts(v)
		}
	case []any:
		for i, v := range content {
			content[i] = ShortTexts(v)
		}
	case string:
		return digest(content)
	}
	return content
}

// digest returns text, or its beginning and its hash if it is longer than maxText bytes. The
// result has at most maxText bytes.
func digest(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s...%x", cut(text, maxText/4), sha256.Sum256([]byte(text)))
}
