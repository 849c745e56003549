// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"reflect"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/pkg/registry/table"
)

// columnTypes are the valid types of a Column.
var columnTypes = []string{"string", "integer", "number", "boolean", "date"}

// table returns the converter for the Table that kubectl get shows.
func (d *description[T]) table() rest.TableConvertor {
	columns := []Column[T]{{Name: "Name", Description: "Name of the object"}}
	for _, c := range d.Columns {
		if c.Priority == 0 {
			columns = append(columns, c)
		}
	}
	columns = append(columns, Column[T]{Name: "Age", Description: "Time since creation"})
	for _, c := range d.Columns {
		if c.Priority != 0 {
			columns = append(columns, c)
		}
	}
	convertor := table.Convertor{Row: func(obj runtime.Object, name, age string) ([]any, error) {
		object, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("table of %s: expected %s, found %T", d.resource, reflect.TypeFor[T](), obj)
		}
		cells := make([]any, 0, len(columns))
		for i, c := range columns {
			switch {
			case i == 0:
				cells = append(cells, name)
			case c.Value == nil:
				cells = append(cells, age)
			default:
				cells = append(cells, cell(c.Value(object)))
			}
		}
		return cells, nil
	}}
	for i, c := range columns {
		column := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Description: c.Description, Priority: c.Priority}
		if column.Type == "" {
			column.Type = "string"
		}
		if i == 0 {
			column.Format = "name"
		}
		convertor.Columns = append(convertor.Columns, column)
	}
	return convertor
}

// cell converts a value to a type that a Table can contain: string, int64, float64, bool or nil.
func cell(value any) any {
	switch t := value.(type) {
	case nil:
		return nil
	case metav1.Time:
		return metatable.ConvertToHumanReadableDateType(t)
	case *metav1.Time:
		if t == nil {
			return nil
		}
		return metatable.ConvertToHumanReadableDateType(*t)
	}
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return nil
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return int64(v.Uint()) //nolint:gosec // a Table has no larger numbers
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.Pointer:
		if _, ok := value.(fmt.Stringer); !ok {
			return cell(v.Elem().Interface())
		}
	}
	return fmt.Sprint(value)
}
