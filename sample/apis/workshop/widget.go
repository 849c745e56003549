// SPDX-License-Identifier: Apache-2.0

package workshop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Widget{}, &WidgetList{}) }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Widget is the internal form of the kind; its fields are documented in the served versions.
type Widget struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   WidgetSpec
	Status WidgetStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Widget
}

// WidgetGrade is one of the grades a widget is made in.
type WidgetGrade string

// The grades of a widget.
const (
	WidgetGradeEconomy  WidgetGrade = "Economy"
	WidgetGradeStandard WidgetGrade = "Standard"
	WidgetGradePremium  WidgetGrade = "Premium"
)

// WidgetSpec is what the user wants.
type WidgetSpec struct {
	Model       string
	Grade       WidgetGrade
	Replicas    *int32
	MaxReplicas *int32
	Parts       []WidgetPart
}

// WidgetPart is one kind of part that a widget is made of.
type WidgetPart struct {
	Name     string
	Quantity *int32
	Material string
}

// WidgetStatus is what a controller observed.
type WidgetStatus struct {
	ObservedGeneration int64
	Replicas           int32
	ReadyReplicas      int32
	Selector           string
	Conditions         []metav1.Condition
}
