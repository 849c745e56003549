// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var widgetSurface = surface{
	resource: metav1.APIResource{
		Name: "widgets", SingularName: "widget", Kind: "Widget", Namespaced: true, Verbs: everyVerb,
		ShortNames: []string{"wg"}, Categories: []string{"workshop"},
	},
	subresources: []metav1.APIResource{
		{Name: "widgets/calibrate", Kind: "CalibrateWidget", Namespaced: true, Verbs: metav1.Verbs{"create"}},
		{Name: "widgets/console", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get"}},
		{Name: "widgets/log", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get"}},
		{Name: "widgets/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: true,
			Verbs: metav1.Verbs{"get", "patch", "update"}},
		{Name: "widgets/status", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get", "patch", "update"}},
	},
	columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name"},
		{Name: "Model", Type: "string"},
		{Name: "Grade", Type: "string"},
		{Name: "Desired", Type: "integer"},
		{Name: "Ready", Type: "integer"},
		{Name: "Age", Type: "string"},
		{Name: "Parts", Type: "integer", Priority: 1},
	},
}

func init() { surfaces = append(surfaces, widgetSurface) }
