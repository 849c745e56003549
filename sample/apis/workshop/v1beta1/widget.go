// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func init() { register(&Widget{}, &WidgetList{}, &v1.CalibrateWidget{}, &v1.WidgetLogOptions{}) }

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/scale"

// Widget is the sample that shows everything an aggregated API can do.
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is the desired state.
	Spec WidgetSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// status is the observed state. It is written through the status subresource only.
	// +optional
	Status WidgetStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of widgets.
	Items []Widget `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// WidgetGrade is one of the grades a widget is made in.
// +enum
// +k8s:enum
type WidgetGrade string

// The grades of a widget.
const (
	WidgetGradeEconomy  WidgetGrade = "Economy"
	WidgetGradeStandard WidgetGrade = "Standard"
	WidgetGradePremium  WidgetGrade = "Premium"
)

// WidgetSpec is what the user wants.
type WidgetSpec struct {
	// model names the design that the widget is built to: a DNS label of at most 63 characters. It cannot be changed.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:immutable
	Model string `json:"model" protobuf:"bytes,1,opt,name=model"`
	// grade is one of Economy, Standard, Premium. Default: Standard.
	// +optional
	// +k8s:optional
	// +default="Standard"
	Grade WidgetGrade `json:"grade,omitempty" protobuf:"bytes,2,opt,name=grade,casttype=WidgetGrade"`
	// replicas is how many copies there shall be: at least 0, at most maxReplicas. Default: 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,3,opt,name=replicas"`
	// maxReplicas is the most that replicas may be set to. Default: no limit.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty" protobuf:"varint,4,opt,name=maxReplicas"`
	// parts lists what a widget is made of, at most 64 entries, each name once.
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

// WidgetPart is one kind of part that a widget is made of.
type WidgetPart struct {
	// name identifies the part within the widget: a DNS label of at most 63 characters.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// quantity is how many of the part one widget needs: at least 1. Default: 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=1
	Quantity *int32 `json:"quantity,omitempty" protobuf:"varint,2,opt,name=quantity"`
	// material is what the part is made of, in at most 63 characters.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=63
	Material string `json:"material,omitempty" protobuf:"bytes,3,opt,name=material"`
}

// WidgetStatus is what a controller observed.
type WidgetStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// replicas is how many copies exist.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Replicas int32 `json:"replicas" protobuf:"varint,2,opt,name=replicas"`
	// readyReplicas is how many copies are usable: at most replicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ReadyReplicas int32 `json:"readyReplicas" protobuf:"varint,3,opt,name=readyReplicas"`
	// selector is the label selector of the copies, in the form of a query string.
	// +optional
	Selector string `json:"selector,omitempty" protobuf:"bytes,4,opt,name=selector"`
	// conditions are the latest observations, each type once.
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
