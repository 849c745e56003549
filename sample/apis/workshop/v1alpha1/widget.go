// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func init() { register(&Widget{}, &WidgetList{}, &v1.CalibrateWidget{}, &v1.WidgetLogOptions{}) }

// The versions in the lifecycle tags are releases of the Kubernetes libraries that the server is
// built with, because the library compares them with its own version.

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:prerelease-lifecycle-gen:introduced=1.34
// +k8s:prerelease-lifecycle-gen:deprecated=1.36
// +k8s:prerelease-lifecycle-gen:removed=1.40
// +k8s:prerelease-lifecycle-gen:replacement=workshop.example.com,v1,Widget
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/scale"

// Widget is a product that is built to a design, in a number of copies. This version is deprecated:
// use workshop.example.com/v1.
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
// +k8s:prerelease-lifecycle-gen:introduced=1.34
// +k8s:prerelease-lifecycle-gen:deprecated=1.36
// +k8s:prerelease-lifecycle-gen:removed=1.40
// +k8s:prerelease-lifecycle-gen:replacement=workshop.example.com,v1,WidgetList

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

// WidgetQuality is the quality that a widget is made in.
// +enum
// +k8s:enum
type WidgetQuality string

// The qualities of a widget.
const (
	// WidgetQualityEconomy is the lowest quality.
	WidgetQualityEconomy WidgetQuality = "Economy"
	// WidgetQualityStandard is the default quality.
	WidgetQualityStandard WidgetQuality = "Standard"
	// WidgetQualityPremium is the highest quality.
	WidgetQualityPremium WidgetQuality = "Premium"
)

// WidgetSpec describes the desired state of a widget.
type WidgetSpec struct {
	// design is the name of the design that the widget is built to. It must be a DNS label of at
	// most 63 characters. This field is immutable. In v1, its name is spec.model.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:immutable
	Design string `json:"design" protobuf:"bytes,1,opt,name=design"`
	// quality is the quality that the widget is made in. It must be Economy, Standard or Premium.
	// Defaults to Standard. In v1, its name is spec.grade.
	// +optional
	// +k8s:optional
	// +default="Standard"
	Quality WidgetQuality `json:"quality,omitempty" protobuf:"bytes,2,opt,name=quality,casttype=WidgetQuality"`
	// scale describes the desired number of copies of the widget.
	// +optional
	Scale WidgetScale `json:"scale,omitempty" protobuf:"bytes,3,opt,name=scale"`
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
	Parts []WidgetPart `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,4,rep,name=parts"`
	// remark is a text for users. In v1, it is the annotation workshop.example.com/remark.
	// +optional
	Remark string `json:"remark,omitempty" protobuf:"bytes,5,opt,name=remark"`
}

// WidgetScale describes the desired number of copies of a widget.
type WidgetScale struct {
	// desired is the desired number of copies of the widget. It must not be negative, or greater than
	// limit. Defaults to 1. In v1, its name is spec.replicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Desired *int32 `json:"desired,omitempty" protobuf:"varint,1,opt,name=desired"`
	// limit is the maximum value of desired. It must be at least 1. If it is not set, desired has no
	// maximum. In v1, its name is spec.maxReplicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	Limit *int32 `json:"limit,omitempty" protobuf:"varint,2,opt,name=limit"`
}

// WidgetPart describes a part that a widget is made of. The material of the part, which is a field
// in v1, is in the annotation materials.workshop.example.com/ followed by the name of the part.
type WidgetPart struct {
	// name identifies the part within the widget. It must be a DNS label of at most 63 characters.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// count is the number of these parts in each copy of the widget. It must be at least 1. Defaults
	// to 1. In v1, its name is quantity.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=1
	Count *int32 `json:"count,omitempty" protobuf:"varint,2,opt,name=count"`
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
