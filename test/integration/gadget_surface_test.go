// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() {
	surfaces = append(surfaces, surface{
		resource: metav1.APIResource{Name: "gadgets", SingularName: "gadget", Kind: "Gadget", Verbs: everyVerb,
			Categories: []string{"workshop"}},
		columns: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name"},
			{Name: "Purpose", Type: "string"},
			{Name: "Age", Type: "string"},
		},
	})
}
