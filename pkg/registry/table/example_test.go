// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/registry/table"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// A Convertor is the TableConvertor of a store.
func ExampleConvertor() {
	columns := table.Convertor{
		Columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the gadget"},
			{Name: "Purpose", Type: "string", Description: "What the gadget is for"},
		},
		Row: func(obj runtime.Object, name, _ string) ([]any, error) {
			return []any{name, obj.(*v1.Gadget).Spec.Purpose}, nil
		},
	}
	gadget := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "ruler"},
		Spec: v1.GadgetSpec{Purpose: "measures"}}
	printed, err := columns.ConvertToTable(context.Background(), gadget, nil)
	fmt.Println(printed.ColumnDefinitions[1].Name, printed.Rows[0].Cells, err)
	// Output: Purpose [ruler measures] <nil>
}
