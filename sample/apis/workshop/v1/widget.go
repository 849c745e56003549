// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Widget{}, &WidgetList{}) }

// Widget shows every feature of a kind: several versions, subresources, an action and a log.

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=Calibrate,verb=create,subresource=calibrate,input=CalibrateWidget,result=Widget
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/scale"

// Widget is a product that is built to a design, in a number of copies.
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is the desired state of the widget.
	Spec WidgetSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// status is the observed state of the widget. The server ignores it in requests that create or
	// update the widget itself. Controllers write it through the status subresource.
	// +optional
	Status WidgetStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of widgets.
	Items []Widget `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// WidgetGrade is the quality that a widget is made in.
// +enum
// +k8s:enum
type WidgetGrade string

// The grades of a widget.
const (
	// WidgetGradeEconomy is the lowest grade.
	WidgetGradeEconomy WidgetGrade = "Economy"
	// WidgetGradeStandard is the default grade.
	WidgetGradeStandard WidgetGrade = "Standard"
	// WidgetGradePremium is the highest grade.
	WidgetGradePremium WidgetGrade = "Premium"
)

// WidgetSpec describes the desired state of a widget.
type WidgetSpec struct {
	// model is the name of the design that the widget is built to. It must be a DNS label of at
	// most 63 characters. This field is immutable.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:immutable
	Model string `json:"model" protobuf:"bytes,1,opt,name=model"`
	// grade is the quality that the widget is made in. It must be Economy, Standard or Premium.
	// Defaults to Standard.
	// +optional
	// +k8s:optional
	// +default="Standard"
	Grade WidgetGrade `json:"grade,omitempty" protobuf:"bytes,2,opt,name=grade,casttype=WidgetGrade"`
	// replicas is the desired number of copies of the widget. It must not be negative, or greater
	// than maxReplicas. Defaults to 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,3,opt,name=replicas"`
	// maxReplicas is the maximum value of replicas. It must be at least 1. If it is not set, replicas
	// has no maximum.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty" protobuf:"varint,4,opt,name=maxReplicas"`
	// parts lists the parts that each copy of the widget is made of. The names of the parts must be
	// unique. The list can have at most 64 items.
	// +optional
	// +k8s:optional
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=64
	Parts []WidgetPart `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,5,rep,name=parts"`
}

// WidgetPart describes a part that a widget is made of.
type WidgetPart struct {
	// name identifies the part within the widget. It must be a DNS label of at most 63 characters.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// quantity is the number of these parts in each copy of the widget. It must be at least 1.
	// Defaults to 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=1
	Quantity *int32 `json:"quantity,omitempty" protobuf:"varint,2,opt,name=quantity"`
	// material is the material that the part is made of. It can have at most 63 characters.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=63
	Material string `json:"material,omitempty" protobuf:"bytes,3,opt,name=material"`
}

// WidgetStatus describes the observed state of a widget.
type WidgetStatus struct {
	// observedGeneration is the metadata.generation of the widget that this status describes. It
	// must not be negative.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// replicas is the number of copies that exist. It must not be negative.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Replicas int32 `json:"replicas" protobuf:"varint,2,opt,name=replicas"`
	// readyReplicas is the number of copies that are ready for use. It must be between 0 and
	// replicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ReadyReplicas int32 `json:"readyReplicas" protobuf:"varint,3,opt,name=readyReplicas"`
	// selector is the label selector of the copies, as a string such as "app=web,tier=front". The
	// scale subresource returns it.
	// +optional
	Selector string `json:"selector,omitempty" protobuf:"bytes,4,opt,name=selector"`
	// conditions lists the latest observations of the widget's state. The types of the conditions
	// must be unique. The condition Calibrated has the status Unknown while a calibration is pending
	// or running, and True after it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,5,rep,name=conditions"`
}
