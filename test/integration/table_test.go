// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asTable requests the Table that kubectl get prints.
const asTable = ";as=Table;g=meta.k8s.io;v=v1"

// tableOf decodes a Table from JSON.
func tableOf(t *testing.T, data []byte) metav1.Table {
	t.Helper()
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil || table.Kind != "Table" ||
		table.APIVersion != "meta.k8s.io/v1" {
		t.Fatalf("got %s (%v), want a Table", data, err)
	}
	return table
}

// TestTableColumns checks that a list, a get and a page of each kind have its columns, and that
// each column has a description.
func TestTableColumns(t *testing.T) {
	for _, k := range kindCases {
		t.Run(k.resource.Resource, func(t *testing.T) {
			namespace := shared.NewNamespace(t)
			name := uniqueName(t)
			client := k.client(t, shared.Admin(t), namespace)
			if _, err := client.Create(t.Context(), k.object(t, name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			path := k.path(namespace)
			if !k.namespaced {
				defer func() {
					if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
				}()
			}
			var want []metav1.TableColumnDefinition
			for _, s := range surfaces {
				if s.resource.Name == k.resource.Resource {
					want = s.columns
				}
			}
			server := aggregator(t, shared)
			for _, suffix := range []string{"", "/" + name, "?limit=1"} {
				table := tableOf(t, server.Get(t, path+suffix,
					http.Header{"Accept": {"application/json" + asTable}}).Body)
				if diff := cmp.Diff(want, table.ColumnDefinitions,
					cmpopts.IgnoreFields(metav1.TableColumnDefinition{}, "Description")); diff != "" {
					t.Errorf("GET %s (-want +got):\n%s", path+suffix, diff)
				}
				for _, column := range table.ColumnDefinitions {
					if column.Description == "" {
						t.Errorf("column %s has no description", column.Name)
					}
				}
			}
		})
	}
}

// path returns the path of the collection.
func (k kindCase) path(namespace string) string {
	path := "/apis/" + k.resource.GroupVersion().String()
	if k.namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource.Resource
}
