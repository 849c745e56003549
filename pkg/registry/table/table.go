// SPDX-License-Identifier: Apache-2.0

// Package table converts objects to the Table that kubectl get prints, from a list of columns and
// a function that returns the cells of a row. The storage of each kind uses it. It calls
// apimachinery's package table.
package table

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Convertor implements rest.TableConvertor.
type Convertor struct {
	// Columns are the column definitions. A column with Priority 1 is shown only with -o wide.
	Columns []metav1.TableColumnDefinition
	// Row returns the cells of one object, one for each column. age is the human-readable time
	// since creation.
	Row func(obj runtime.Object, name, age string) ([]any, error)
}

// ConvertToTable converts an object or a list.
func (c Convertor) ConvertToTable(_ context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	rows, err := metatable.MetaToTableRow(object, func(obj runtime.Object, _ metav1.Object, name,
		age string) ([]any, error) {
		return c.Row(obj, name, age)
	})
	if err != nil {
		return nil, err
	}
	table := &metav1.Table{Rows: rows}
	if opts, ok := tableOptions.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		table.ColumnDefinitions = c.Columns
	}
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if one, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = one.GetResourceVersion()
	}
	return table, nil
}
