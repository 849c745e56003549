// SPDX-License-Identifier: Apache-2.0

// Package queryoptions lets the library read the options of storages, such as those of a log, from
// the query of a request.
package queryoptions

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Of returns empty options of a storage, or nil if it has none.
func Of(storage rest.Storage) (options runtime.Object) {
	switch s := storage.(type) {
	case rest.GetterWithOptions:
		options, _, _ = s.NewGetOptions()
	case rest.Connecter:
		options, _, _ = s.NewConnectOptions()
	}
	return options
}

// InVersion returns empty options of the type that the scheme has for a version.
func InVersion(scheme *runtime.Scheme, options runtime.Object, gv schema.GroupVersion) (runtime.Object, error) {
	kinds, _, err := scheme.ObjectKinds(options)
	if err != nil {
		return nil, err
	}
	return scheme.New(gv.WithKind(kinds[0].Kind))
}

// Parameter is a query parameter with its OpenAPI type.
type Parameter struct{ Name, Type string }

// Parameters returns the query parameters of options for which Check returns nil.
func Parameters(options runtime.Object) []Parameter {
	fields, err := fieldsOf(options)
	if err != nil {
		return nil
	}
	parameters := make([]Parameter, len(fields))
	for i, f := range fields {
		parameters[i] = Parameter{f.name, openAPIType(reflect.TypeOf(options).Elem().FieldByIndex(f.index).Type)}
	}
	return parameters
}

// openAPIType returns the OpenAPI type of the values of a field. The library's OpenAPI 2 has no
// lists of them.
func openAPIType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return openAPIType(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	}
	return "string"
}

// Check returns an error if the options have a field that a query cannot set.
func Check(options runtime.Object) error {
	_, err := fieldsOf(options)
	return err
}

// AddConversion registers the conversion of a query to a type of options, unless a generated
// conversion exists.
func AddConversion(scheme *runtime.Scheme, options runtime.Object) error {
	if scheme.Convert(&url.Values{}, options.DeepCopyObject(), nil) == nil {
		return nil
	}
	fields, err := fieldsOf(options)
	if err != nil {
		return err
	}
	return scheme.AddConversionFunc((*url.Values)(nil), options, func(from, to any, _ conversion.Scope) error {
		query, value := *from.(*url.Values), reflect.ValueOf(to).Elem() //nolint:forcetypeassert // as registered
		for _, f := range fields {
			texts, ok := query[f.name]
			if !ok || len(texts) == 0 {
				continue
			}
			if err := f.set(value.FieldByIndex(f.index), texts); err != nil {
				return fmt.Errorf("query parameter %s: %w", f.name, err)
			}
		}
		return nil
	})
}

// optionField is a field of a type of options, with the function that sets it from the values of
// its parameter.
type optionField struct {
	name  string
	index []int
	set   func(reflect.Value, []string) error
}

// fieldsOf returns the fields of options with their JSON names. It returns an error for a field
// that a query cannot set.
func fieldsOf(options runtime.Object) ([]optionField, error) {
	var fields []optionField
	for _, f := range reflect.VisibleFields(reflect.TypeOf(options).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && f.Type != reflect.TypeFor[metav1.TypeMeta]() {
			return nil, fmt.Errorf("field %s: embedded structs are not read from a query", f.Name)
		}
		if name == "" || name == "-" || len(f.Index) > 1 || f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		set := setterOf(f.Type)
		if set == nil {
			return nil, fmt.Errorf("field %s: a query has no values of the type %s", f.Name, f.Type)
		}
		fields = append(fields, optionField{name, f.Index, set})
	}
	return fields, nil
}

// setterOf returns a function that sets a field of type t from the values of its parameter, or nil
// if a query cannot set it.
func setterOf(t reflect.Type) func(reflect.Value, []string) error {
	if t == reflect.TypeFor[metav1.Time]() {
		return func(v reflect.Value, texts []string) error {
			parsed, err := time.Parse(time.RFC3339, texts[0])
			v.Set(reflect.ValueOf(metav1.NewTime(parsed)))
			return err
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		set := setterOf(t.Elem())
		if set == nil {
			return nil
		}
		return func(v reflect.Value, texts []string) error {
			v.Set(reflect.New(t.Elem()))
			return set(v.Elem(), texts)
		}
	case reflect.Slice:
		set := setterOf(t.Elem())
		if set == nil || t.Elem().Kind() != reflect.String {
			return nil
		}
		return func(v reflect.Value, texts []string) error {
			v.Set(reflect.MakeSlice(t, len(texts), len(texts)))
			for i := range texts {
				if err := set(v.Index(i), texts[i:]); err != nil {
					return err
				}
			}
			return nil
		}
	case reflect.String:
		return func(v reflect.Value, texts []string) error {
			v.SetString(texts[0])
			return nil
		}
	case reflect.Bool:
		return func(v reflect.Value, texts []string) error {
			if texts[0] == "" { // ?follow
				v.SetBool(true)
				return nil
			}
			parsed, err := strconv.ParseBool(texts[0])
			v.SetBool(parsed)
			return err
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return func(v reflect.Value, texts []string) error {
			parsed, err := strconv.ParseInt(texts[0], 10, t.Bits())
			v.SetInt(parsed)
			return err
		}
	}
	return nil
}
