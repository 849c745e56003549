// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Gadget{}, &GadgetList{}) }

// Gadget is the smallest complete kind: it is cluster-scoped, and has one version and no
// subresource.

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Gadget is a measuring device.
type Gadget struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is the desired state of the gadget.
	Spec GadgetSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GadgetList is a list of gadgets.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of gadgets.
	Items []Gadget `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// GadgetSpec describes the desired state of a gadget.
type GadgetSpec struct {
	// purpose describes the use of the gadget. It can have at most 256 characters.
	// +required
	// +k8s:required
	// +k8s:maxLength=256
	Purpose string `json:"purpose" protobuf:"bytes,1,opt,name=purpose"`
	// precision is the number of decimal places of the gadget's readings. It must be between 0 and 6.
	// Defaults to 2.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +k8s:maximum=6
	// +default=2
	Precision *int32 `json:"precision,omitempty" protobuf:"varint,2,opt,name=precision"`
}
