// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Part{}, &PartList{}) }

// Part is a kind whose objects are not stored in etcd.

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Part is a spare part that the workshop has in stock. It is read-only: the objects are the entries
// of a file of the server.
type Part struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is the stock of the part.
	// +optional
	Status PartStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// PartStatus is the stock of a part.
type PartStatus struct {
	// quantity is the number of pieces in stock.
	Quantity int32 `json:"quantity" protobuf:"varint,1,opt,name=quantity"`
	// shelf is the place of the part in the workshop.
	// +optional
	Shelf string `json:"shelf,omitempty" protobuf:"bytes,2,opt,name=shelf"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PartList is a list of parts.
type PartList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of parts.
	Items []Part `json:"items" protobuf:"bytes,2,rep,name=items"`
}
