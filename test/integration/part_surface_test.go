// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() {
	surfaces = append(surfaces, surface{
		resource: metav1.APIResource{Name: "parts", SingularName: "part", Kind: "Part",
			Verbs: metav1.Verbs{"get", "list", "watch"}, Categories: []string{"workshop"}},
		columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name"},
			{Name: "Quantity", Type: "integer"},
			{Name: "Shelf", Type: "string"},
			{Name: "Age", Type: "string"},
		},
	})
}
