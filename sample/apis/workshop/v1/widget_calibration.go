// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&CalibrateWidget{}, &WidgetLogOptions{}) }

// All versions use the types in this file.

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CalibrateWidget requests the calibration of a widget. It is the body of a request to the
// subresource calibrate.
type CalibrateWidget struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata. If uid or resourceVersion is set, it must match that of the widget.
	// Otherwise the server responds with a conflict.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// reason describes why the widget is calibrated. It can have at most 256 characters. It is the
	// first message of the condition Calibrated.
	// +required
	// +k8s:required
	// +k8s:maxLength=256
	Reason string `json:"reason" protobuf:"bytes,2,opt,name=reason"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetLogOptions contains the query parameters of the subresource log of a widget.
type WidgetLogOptions struct {
	metav1.TypeMeta `json:",inline"`
	// follow streams the log until the calibration is complete. Defaults to false, which returns the
	// current state of the calibration.
	// +optional
	Follow bool `json:"follow,omitempty" protobuf:"varint,1,opt,name=follow"`
}
