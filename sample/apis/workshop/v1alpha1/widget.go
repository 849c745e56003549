// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func init() { register(&Widget{}, &WidgetList{}, &v1.CalibrateWidget{}, &v1.WidgetLogOptions{}) }

// The numbers of the lifecycle below are releases of the Kubernetes libraries that the server is built with: they are what
// the library compares with.

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
// +k8s:prerelease-lifecycle-gen:introduced=1.34
// +k8s:prerelease-lifecycle-gen:deprecated=1.36
// +k8s:prerelease-lifecycle-gen:removed=1.40
// +k8s:prerelease-lifecycle-gen:replacement=workshop.example.com,v1,WidgetList

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of widgets.
	Items []Widget `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// WidgetQuality is one of the qualities a widget is made in.
// +enum
// +k8s:enum
type WidgetQuality string

// The qualities of a widget.
const (
	WidgetQualityEconomy  WidgetQuality = "Economy"
	WidgetQualityStandard WidgetQuality = "Standard"
	WidgetQualityPremium  WidgetQuality = "Premium"
)

// WidgetSpec is what the user wants.
type WidgetSpec struct {
	// design names what the widget is built to: a DNS label of at most 63 characters. It cannot be changed. In v1: spec.model.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:immutable
	Design string `json:"design" protobuf:"bytes,1,opt,name=design"`
	// quality is one of Economy, Standard, Premium. Default: Standard. In v1: spec.grade.
	// +optional
	// +k8s:optional
	// +default="Standard"
	Quality WidgetQuality `json:"quality,omitempty" protobuf:"bytes,2,opt,name=quality,casttype=WidgetQuality"`
	// scale says how many copies there shall be.
	// +optional
	Scale WidgetScale `json:"scale,omitempty" protobuf:"bytes,3,opt,name=scale"`
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
	Parts []WidgetPart `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,4,rep,name=parts"`
	// remark is free text. In v1: the annotation workshop.example.com/remark.
	// +optional
	Remark string `json:"remark,omitempty" protobuf:"bytes,5,opt,name=remark"`
}

// WidgetScale says how many copies of a widget there shall be.
type WidgetScale struct {
	// desired is how many copies there shall be: at least 0, at most limit. Default: 1. In v1: spec.replicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Desired *int32 `json:"desired,omitempty" protobuf:"varint,1,opt,name=desired"`
	// limit is the most that desired may be set to. Default: no limit. In v1: spec.maxReplicas.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	Limit *int32 `json:"limit,omitempty" protobuf:"varint,2,opt,name=limit"`
}

// WidgetPart is one kind of part that a widget is made of. Its material, which v1 has, is kept in an annotation.
type WidgetPart struct {
	// name identifies the part within the widget: a DNS label of at most 63 characters.
	// +required
	// +k8s:required
	// +k8s:format=k8s-short-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// count is how many of the part one widget needs: at least 1. Default: 1. In v1: quantity.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=1
	Count *int32 `json:"count,omitempty" protobuf:"varint,2,opt,name=count"`
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
