// SPDX-License-Identifier: Apache-2.0

package identity

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme registers IdentityReview in a group and version. The internal version of the kind is
// the same type.
func AddToScheme(scheme *runtime.Scheme, gv schema.GroupVersion) {
	scheme.AddKnownTypes(gv, &IdentityReview{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, &IdentityReview{})
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IdentityReview reports the identity of the user who creates it, as the server authenticated the
// request. The only supported verb is create. The status of the response has the result. The server
// does not store the object.
type IdentityReview struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is the result of the review. The server sets it, and ignores it in requests. Read-only.
	// +optional
	Status IdentityReviewStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// IdentityReviewStatus describes the identity of the user, and how the server authenticated the
// request.
type IdentityReviewStatus struct {
	// userInfo is the user that the server authorized the request for.
	// +optional
	UserInfo *authenticationv1.UserInfo `json:"userInfo,omitempty" protobuf:"bytes,1,opt,name=userInfo"`
	// authenticator is the method that authenticated the request. It is RequestHeader if the front
	// proxy authenticated the user and sent the user's identity in headers, ClientCertificate,
	// BearerToken, or Anonymous if the request had no credentials.
	// +optional
	Authenticator string `json:"authenticator,omitempty" protobuf:"bytes,2,opt,name=authenticator"`
	// proxySubject is the subject of the front proxy's client certificate. It is set only if the
	// authenticator is RequestHeader.
	// +optional
	ProxySubject string `json:"proxySubject,omitempty" protobuf:"bytes,3,opt,name=proxySubject"`
	// proxyCertificateSHA256 is the SHA-256 of the front proxy's client certificate, in lowercase
	// hexadecimal digits. While the certificate is replaced, it identifies the certificate that a
	// kube-apiserver uses. It is set only if the authenticator is RequestHeader.
	// +optional
	ProxyCertificateSHA256 string `json:"proxyCertificateSHA256,omitempty" protobuf:"bytes,4,opt,name=proxyCertificateSHA256"`
}
