// SPDX-License-Identifier: Apache-2.0

// Package install holds the one list of the versions that the server serves. The scheme, the storage, the discovery
// order and the APIService registrations are all made from it.
//
// pkg/apiserver, cmd/extension-apiserver and the tests call it; it calls the packages of the versions.
package install

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"example.com/extension-apiserver/pkg/apis/workshop"
	v1 "example.com/extension-apiserver/pkg/apis/workshop/v1"
	"example.com/extension-apiserver/pkg/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/pkg/apis/workshop/v1beta1"
)

// Version is one served version of the group.
type Version struct {
	GroupVersion schema.GroupVersion
	AddToScheme  func(*runtime.Scheme) error
}

// Versions lists the served versions. The first is the preferred one, and the one that objects have in etcd.
var Versions = []Version{
	{GroupVersion: v1.SchemeGroupVersion, AddToScheme: v1.AddToScheme},
	{GroupVersion: v1beta1.SchemeGroupVersion, AddToScheme: v1beta1.AddToScheme},
	{GroupVersion: v1alpha1.SchemeGroupVersion, AddToScheme: v1alpha1.AddToScheme},
}

// StorageVersion is the version that objects have in etcd.
func StorageVersion() schema.GroupVersion { return Versions[0].GroupVersion }

// GroupVersions returns the group versions of Versions, in the same order.
func GroupVersions() []schema.GroupVersion {
	gvs := make([]schema.GroupVersion, 0, len(Versions))
	for _, v := range Versions {
		gvs = append(gvs, v.GroupVersion)
	}
	return gvs
}

// Install adds the internal types and every version to the scheme, and sets the order of preference. It adds the kind of the
// subresource scale too, which belongs to another group and has one form inside and outside.
func Install(scheme *runtime.Scheme) {
	for _, version := range []string{runtime.APIVersionInternal, autoscalingv1.SchemeGroupVersion.Version} {
		scheme.AddKnownTypes(schema.GroupVersion{Group: autoscalingv1.GroupName, Version: version}, &autoscalingv1.Scale{})
	}
	utilruntime.Must(workshop.AddToScheme(scheme))
	for _, v := range Versions {
		utilruntime.Must(v.AddToScheme(scheme))
	}
	utilruntime.Must(scheme.SetVersionPriority(GroupVersions()...))
}
