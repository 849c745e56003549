// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var names = Convertor{
	Columns: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Age"}, {Name: "Detail", Priority: 1}},
	Row:     func(_ runtime.Object, name, age string) ([]any, error) { return []any{name, age, "x"}, nil },
}

func named(name string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "5", CreationTimestamp: metav1.NewTime(time.Now().Add(-49 * time.Hour)),
	}}
}

func TestConvertToTable(t *testing.T) {
	one := named("a")
	list := &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: new(int64(7))},
		Items:    []metav1.PartialObjectMetadata{named("a"), named("b")},
	}
	for _, tc := range []struct {
		name    string
		object  runtime.Object
		options runtime.Object
		rows    [][]any
		columns []metav1.TableColumnDefinition
		meta    metav1.ListMeta
	}{
		{"object", &one, &metav1.TableOptions{}, [][]any{{"a", "2d1h", "x"}}, names.Columns,
			metav1.ListMeta{ResourceVersion: "5"}},
		{"list", list, &metav1.TableOptions{}, [][]any{{"a", "2d1h", "x"}, {"b", "2d1h", "x"}}, names.Columns,
			list.ListMeta},
		{"empty list", &metav1.PartialObjectMetadataList{}, &metav1.TableOptions{}, nil, names.Columns,
			metav1.ListMeta{}},
		// A watch sends the headings once and sets NoHeaders after that.
		{"no headers", list, &metav1.TableOptions{NoHeaders: true}, [][]any{{"a", "2d1h", "x"}, {"b", "2d1h", "x"}},
			nil, list.ListMeta},
		{"no options", &one, nil, [][]any{{"a", "2d1h", "x"}}, names.Columns, metav1.ListMeta{ResourceVersion: "5"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := names.ConvertToTable(t.Context(), tc.object, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			var rows [][]any
			for _, row := range got.Rows {
				rows = append(rows, row.Cells)
				if row.Object.Object == nil {
					t.Errorf("row %v: got no object, want the one that the row is of", row.Cells)
				}
			}
			if diff := cmp.Diff(tc.rows, rows); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.columns, got.ColumnDefinitions); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.meta, got.ListMeta); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRowError: ConvertToTable returns the error of Row and no partial table.
func TestRowError(t *testing.T) {
	want := errors.New("not mine")
	failing := Convertor{Row: func(runtime.Object, string, string) ([]any, error) { return nil, want }}
	one := named("a")
	if _, err := failing.ConvertToTable(t.Context(), &one, nil); !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}
