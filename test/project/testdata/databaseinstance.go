package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func init() { register(&DatabaseInstance{}, &DatabaseInstanceList{}) }

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/scale"

// DatabaseInstance is a database that the platform operates.
type DatabaseInstance struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is the desired state.
	Spec DatabaseInstanceSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// status is the observed state. It can be written only through the status subresource.
	// +optional
	Status DatabaseInstanceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DatabaseInstanceList is a list of databaseinstances.
type DatabaseInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of databaseinstances.
	Items []DatabaseInstance `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// DatabaseInstanceSpec is the desired state of a DatabaseInstance.
type DatabaseInstanceSpec struct {
	// engine is the database engine.
	// +required
	// +k8s:required
	// +k8s:immutable
	Engine DatabaseEngine `json:"engine" protobuf:"bytes,1,opt,name=engine,casttype=DatabaseEngine"`
	// replicas is the desired number of copies: at least 0. Default: 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +default=1
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,2,opt,name=replicas"`
	// volume is the size of each copy's volume. Default: 10Gi.
	// +optional
	// +k8s:optional
	// +default="10Gi"
	Volume *resource.Quantity `json:"volume,omitempty" protobuf:"bytes,3,opt,name=volume"`
	// port is the port of the database: a number, or the name of a port of the template. Default:
	// the port of the engine.
	// +optional
	// +k8s:optional
	Port *intstr.IntOrString `json:"port,omitempty" protobuf:"bytes,4,opt,name=port"`
	// maxUnavailable is the maximum number or percentage of copies that may be unavailable during
	// a change. Default: 25%.
	// +optional
	// +k8s:optional
	// +default="25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty" protobuf:"bytes,5,opt,name=maxUnavailable"`
	// backupTimeout is the maximum duration of a backup.
	// +optional
	// +k8s:optional
	BackupTimeout *metav1.Duration `json:"backupTimeout,omitempty" protobuf:"bytes,6,opt,name=backupTimeout"`
	// password selects the Secret key with the password of the administrator.
	Password corev1.SecretKeySelector `json:"password" protobuf:"bytes,7,opt,name=password"`
	// settings are engine-specific settings.
	// +optional
	Settings runtime.RawExtension `json:"settings,omitempty" protobuf:"bytes,8,opt,name=settings"`
	// resources are the resource requirements of the engine's container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty" protobuf:"bytes,9,opt,name=resources"`
	// template is the Pod template of the copies.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty" protobuf:"bytes,10,opt,name=template"`
	// clients selects the Pods that may connect.
	// +optional
	// +k8s:optional
	Clients *metav1.LabelSelector `json:"clients,omitempty" protobuf:"bytes,11,opt,name=clients"`
	// users are the users of the database. Each name is unique.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	Users []DatabaseUser `json:"users,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,12,rep,name=users"`
}

// DatabaseEngine is a kind of database.
// +enum
// +k8s:enum
type DatabaseEngine string

const (
	// EnginePostgreSQL is PostgreSQL.
	EnginePostgreSQL DatabaseEngine = "PostgreSQL"
	// EngineMariaDB is MariaDB.
	EngineMariaDB DatabaseEngine = "MariaDB"
)

// DatabaseUser is a user of a database.
type DatabaseUser struct {
	// name is the name of the user.
	// +required
	// +k8s:required
	// +k8s:maxLength=63
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// password selects the Secret key with the user's password.
	// +optional
	// +k8s:optional
	Password *corev1.SecretKeySelector `json:"password,omitempty" protobuf:"bytes,2,opt,name=password"`
}

// DatabaseInstanceStatus is the state that a controller observed.
type DatabaseInstanceStatus struct {
	// observedGeneration is the generation of the spec that the controller last observed.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// conditions are the latest observations. Each type is unique.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,2,rep,name=conditions"`
	// replicas is the observed number of copies.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Replicas int32 `json:"replicas" protobuf:"varint,3,opt,name=replicas"`
	// selector is the label selector of the copies' Pods, in the form of a query string.
	// +optional
	// +k8s:optional
	Selector string `json:"selector,omitempty" protobuf:"bytes,4,opt,name=selector"`
}
