// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
)

var (
	// typedScheme and codecs belong to a client that has the types of every version.
	typedScheme = newTypedScheme()
	codecs      = serializer.NewCodecFactory(typedScheme, serializer.WithSerializer(cbor.NewSerializerInfo))
)

// hubScheme and hubCodecs are equivalent to those of the server.
var (
	hubScheme = newHubScheme()
	hubCodecs = serializer.NewCodecFactory(hubScheme)
)

func newHubScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	return scheme
}

func newTypedScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	identity.AddToScheme(scheme, install.GroupVersions()[0])
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}
