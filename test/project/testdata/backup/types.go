package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

func init() { register(&BackupRun{}, &BackupRunList{}, &CancelBackupRun{}, &BackupRunLogOptions{}) }

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// BackupRun is one backup of a database.
type BackupRun struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is the desired state.
	Spec BackupRunSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// status is the observed state. It can be written only through subresources.
	// +optional
	Status BackupRunStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BackupRunList is a list of backupruns.
type BackupRunList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of backupruns.
	Items []BackupRun `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// BackupRunSpec is the desired state of a BackupRun.
type BackupRunSpec struct {
	// instance is the name of the DatabaseInstance in the same namespace.
	// +required
	// +k8s:required
	// +k8s:immutable
	Instance string `json:"instance" protobuf:"bytes,1,opt,name=instance"`
	// keepDays is the retention of the backup in days. Default: 7.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +default=7
	KeepDays *int32 `json:"keepDays,omitempty" protobuf:"varint,2,opt,name=keepDays"`
}

// BackupRunStatus is the observed state of a BackupRun.
type BackupRunStatus struct {
	// phase is Cancelled after the action cancel.
	// +optional
	// +k8s:optional
	Phase string `json:"phase,omitempty" protobuf:"bytes,1,opt,name=phase"`
	// message is the reason for the phase.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,2,opt,name=message"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// CancelBackupRun is the body of the action cancel.
type CancelBackupRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata.uid and metadata.resourceVersion, if set, must match the BackupRun.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// reason is copied to status.message.
	// +required
	// +k8s:required
	Reason string `json:"reason" protobuf:"bytes,2,opt,name=reason"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BackupRunLogOptions are the query options of the log.
type BackupRunLogOptions struct {
	metav1.TypeMeta `json:",inline"`
	// follow streams the log until the run ends.
	// +optional
	Follow bool `json:"follow,omitempty" protobuf:"varint,1,opt,name=follow"`
	// everySeconds is the interval between two lines in seconds. Default: 5.
	// +optional
	EverySeconds *int64 `json:"everySeconds,omitempty" protobuf:"varint,2,opt,name=everySeconds"`
}
