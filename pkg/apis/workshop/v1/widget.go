// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Widget{}, &WidgetList{}) }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// Widget is the sample that shows everything an aggregated API can do.
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state.
	Spec WidgetSpec `json:"spec"`
	// status is the observed state. It is written through the status subresource only.
	// +optional
	Status WidgetStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of widgets.
	Items []Widget `json:"items"`
}

// WidgetSize is one of the sizes a widget is made in.
// +enum
// +k8s:enum
type WidgetSize string

// The sizes of a widget.
const (
	WidgetSizeSmall  WidgetSize = "Small"
	WidgetSizeMedium WidgetSize = "Medium"
	WidgetSizeLarge  WidgetSize = "Large"
)

// WidgetSpec is what the user wants.
type WidgetSpec struct {
	// model names the design that the widget is built to: a DNS label of at most 63 characters. It cannot be changed.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:immutable
	Model string `json:"model"`
	// size is one of Small, Medium, Large. Default: Medium.
	// +optional
	// +k8s:optional
	// +default="Medium"
	Size WidgetSize `json:"size,omitempty"`
	// replicas is how many copies there shall be: at least 0, at most maxReplicas. Default: 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Replicas *int32 `json:"replicas,omitempty"`
	// maxReplicas is the most that replicas may be set to. Default: no limit.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// parts lists what a widget is made of, at most 64 entries, each name once.
	// +optional
	// +k8s:optional
	// +listType=map
	// +listMapKey=name
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=64
	Parts []WidgetPart `json:"parts,omitempty"`
}

// WidgetPart is one kind of part that a widget is made of.
type WidgetPart struct {
	// name identifies the part within the widget: a DNS label of at most 63 characters.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	Name string `json:"name"`
	// quantity is how many of the part one widget needs: at least 1. Default: 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=1
	Quantity *int32 `json:"quantity,omitempty"`
	// material is what the part is made of, in at most 63 characters.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=63
	Material string `json:"material,omitempty"`
}

// WidgetStatus is what a controller observed.
type WidgetStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is how many copies exist.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Replicas int32 `json:"replicas"`
	// readyReplicas is how many copies are usable: at most replicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`
	// selector is the label selector of the copies, in the form of a query string.
	// +optional
	Selector string `json:"selector,omitempty"`
	// conditions are the latest observations, each type once.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}
