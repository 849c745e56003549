// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/extension-apiserver/pkg/registry/table"
	"example.com/extension-apiserver/sample/apis/workshop"
)

// columns is what kubectl get shows.
var columns = table.Convertor{
	Columns: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the widget"},
		{Name: "Model", Type: "string", Description: "Design that the widget is built to"},
		{Name: "Grade", Type: "string", Description: "Quality that the widget is made in"},
		{Name: "Desired", Type: "integer", Description: "Copies there shall be"},
		{Name: "Ready", Type: "integer", Description: "Copies that are usable"},
		{Name: "Age", Type: "string", Description: "Time since creation"},
		{Name: "Parts", Type: "integer", Priority: 1, Description: "Kinds of parts that the widget is made of"},
	},
	Row: func(obj runtime.Object, name, age string) ([]any, error) {
		widget, ok := obj.(*workshop.Widget)
		if !ok {
			return nil, fmt.Errorf("table of widgets: expected *workshop.Widget, found %T", obj)
		}
		var desired any = "<unset>"
		if widget.Spec.Replicas != nil {
			desired = int64(*widget.Spec.Replicas)
		}
		return []any{name, widget.Spec.Model, string(widget.Spec.Grade), desired,
			int64(widget.Status.ReadyReplicas), age, int64(len(widget.Spec.Parts))}, nil
	},
}
