// SPDX-License-Identifier: Apache-2.0

// Package install holds the only list of the versions that the server serves. The scheme, the
// storage, the discovery order and the APIService registrations are derived from it.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
)

// Version is one served version of the group.
type Version struct {
	GroupVersion schema.GroupVersion
	AddToScheme  func(*runtime.Scheme) error
}

// Versions lists the served versions. The first is the preferred version and the storage version.
var Versions = []Version{
	{GroupVersion: v1.SchemeGroupVersion, AddToScheme: v1.AddToScheme},
	{GroupVersion: v1beta1.SchemeGroupVersion, AddToScheme: v1beta1.AddToScheme},
	{GroupVersion: v1alpha1.SchemeGroupVersion, AddToScheme: v1alpha1.AddToScheme},
}

// StorageVersion returns the version in which objects are stored in etcd.
func StorageVersion() schema.GroupVersion { return Versions[0].GroupVersion }

// GroupVersions returns the group versions of Versions, in the same order.
func GroupVersions() []schema.GroupVersion {
	gvs := make([]schema.GroupVersion, 0, len(Versions))
	for _, v := range Versions {
		gvs = append(gvs, v.GroupVersion)
	}
	return gvs
}

// AddToScheme adds every version to the scheme, and sets the order of preference.
func AddToScheme(scheme *runtime.Scheme) error {
	var builder runtime.SchemeBuilder
	for _, v := range Versions {
		builder.Register(v.AddToScheme)
	}
	builder.Register(func(scheme *runtime.Scheme) error { return scheme.SetVersionPriority(GroupVersions()...) })
	return builder.AddToScheme(scheme)
}
