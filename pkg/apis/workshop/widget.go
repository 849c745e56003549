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

// WidgetSize is one of the sizes a widget is made in.
type WidgetSize string

// The sizes of a widget.
const (
	WidgetSizeSmall  WidgetSize = "Small"
	WidgetSizeMedium WidgetSize = "Medium"
	WidgetSizeLarge  WidgetSize = "Large"
)

// WidgetSpec is what the user wants.
type WidgetSpec struct {
	Model       string
	Size        WidgetSize
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
