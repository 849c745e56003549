// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&CalibrateWidget{}, &WidgetLogOptions{}) }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CalibrateWidget is the body of the action calibrate of a Widget, in each version.
type CalibrateWidget struct {
	metav1.TypeMeta `json:",inline"`
	// metadata.uid and metadata.resourceVersion, if they are set, must be those of the Widget.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// reason is why the widget is calibrated, in at most 256 characters. The condition Calibrated shows it.
	// +required
	// +k8s:required
	// +k8s:maxLength=256
	Reason string `json:"reason" protobuf:"bytes,2,opt,name=reason"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WidgetLogOptions are the options of the log of a Widget, in each version.
type WidgetLogOptions struct {
	metav1.TypeMeta `json:",inline"`
	// follow goes on until the calibration ends.
	// +optional
	Follow bool `json:"follow,omitempty" protobuf:"varint,1,opt,name=follow"`
}
