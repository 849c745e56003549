// SPDX-License-Identifier: Apache-2.0

package workshop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&Gadget{}, &GadgetList{}) }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Gadget is the internal form of the kind; its fields are documented in the served version.
type Gadget struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec GadgetSpec
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GadgetList is a list of gadgets.
type GadgetList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Gadget
}

// GadgetSpec is what the user wants.
type GadgetSpec struct {
	Purpose   string
	Precision *int32
}
