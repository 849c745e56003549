// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func TestColumns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		object runtime.Object
		want   [][]any
	}{
		{"one", stored(), [][]any{{"w", "pendulum", "Standard", int64(2), int64(1), "<unknown>", int64(1)}}},
		{"list", &v1.WidgetList{Items: []v1.Widget{*stored(),
			{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}}}, [][]any{
			{"w", "pendulum", "Standard", int64(2), int64(1), "<unknown>", int64(1)},
			{"empty", "", "", "<unset>", int64(0), "<unknown>", int64(0)},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := storageOf(newScheme())["widgets"].(rest.TableConvertor).ConvertToTable(t.Context(), tc.object, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]any
			for _, row := range table.Rows {
				got = append(got, row.Cells)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			var narrow, wide []string
			for _, column := range table.ColumnDefinitions {
				if column.Priority == 0 {
					narrow = append(narrow, column.Name)
				} else {
					wide = append(wide, column.Name)
				}
			}
			if diff := cmp.Diff([]string{"Name", "Model", "Grade", "Desired", "Ready", "Age"}, narrow); diff != "" {
				t.Errorf("columns of kubectl get (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"Parts"}, wide); diff != "" {
				t.Errorf("columns that kubectl get -o wide adds (-want +got):\n%s", diff)
			}
		})
	}
}
