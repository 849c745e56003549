// SPDX-License-Identifier: Apache-2.0

// Package widget defines the kind Widget, which shows every feature of a kind. Its validation is
// in validation.go, its action calibrate and its log in calibration.go, its subresource console
// in console_session.go.
package widget

import (
	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Kind is the kind Widget.
var Kind = registry.Kind[*v1.Widget]{
	ShortNames: []string{"wg"},
	Categories: []string{"workshop"},
	Columns: []registry.Column[*v1.Widget]{
		{Name: "Model", Description: "Design that the widget is built to",
			Value: func(w *v1.Widget) any { return w.Spec.Model }},
		{Name: "Grade", Description: "Quality that the widget is made in",
			Value: func(w *v1.Widget) any { return w.Spec.Grade }},
		{Name: "Desired", Type: "integer", Description: "Desired number of copies", Value: desired},
		{Name: "Ready", Type: "integer", Description: "Number of copies that are ready for use",
			Value: func(w *v1.Widget) any { return w.Status.ReadyReplicas }},
		{Name: "Parts", Type: "integer", Description: "Number of different parts of each copy", Priority: 1,
			Value: func(w *v1.Widget) any { return len(w.Spec.Parts) }},
	},
	SelectableFields: map[string]func(*v1.Widget) string{
		"spec.model": func(w *v1.Widget) string { return w.Spec.Model },
		"spec.grade": func(w *v1.Widget) string { return string(w.Spec.Grade) },
	},
	Paths: map[string]map[string]string{"v1alpha1": {
		"spec.model":       "spec.design",
		"spec.grade":       "spec.quality",
		"spec.replicas":    "spec.scale.desired",
		"spec.maxReplicas": "spec.scale.limit",
	}},
	Validate: validate,
	Subresources: map[string]registry.Subresource[*v1.Widget]{
		"status":    registry.Status[*v1.Widget]{Validate: validateStatus},
		"scale":     registry.Scale[*v1.Widget]{},
		"calibrate": registry.Action(calibrate),
		"log":       registry.Log(writeLog),
		"console":   registry.Stream[*v1.Widget](newConsoleSession),
	},
}

func desired(w *v1.Widget) any {
	if w.Spec.Replicas == nil {
		return "<unset>"
	}
	return w.Spec.Replicas
}
