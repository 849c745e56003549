// SPDX-License-Identifier: Apache-2.0

package identity

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme registers the kind in the version of a group. Its internal form is the same type.
func AddToScheme(scheme *runtime.Scheme, gv schema.GroupVersion) {
	scheme.AddKnownTypes(gv, &IdentityReview{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, &IdentityReview{})
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IdentityReview shows a caller what this server saw of it. It can only be created; the answer is in the response
// and nothing is stored.
type IdentityReview struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// status is filled in by the server; what a client sends is ignored.
	// +optional
	Status IdentityReviewStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// IdentityReviewStatus is what the server saw of the caller.
type IdentityReviewStatus struct {
	// userInfo is the identity that the request is authorized as.
	// +optional
	UserInfo *authenticationv1.UserInfo `json:"userInfo,omitempty" protobuf:"bytes,1,opt,name=userInfo"`
	// authenticator is what accepted the credentials of the request: RequestHeader (the front proxy vouched for the
	// user), ClientCertificate, BearerToken or Anonymous.
	// +optional
	Authenticator string `json:"authenticator,omitempty" protobuf:"bytes,2,opt,name=authenticator"`
	// proxySubject is the subject of the front proxy's client certificate, if the authenticator is RequestHeader.
	// +optional
	ProxySubject string `json:"proxySubject,omitempty" protobuf:"bytes,3,opt,name=proxySubject"`
	// proxyCertificateSHA256 is the SHA-256 of that certificate, in lower-case hexadecimal. It tells which one a kube-apiserver uses while it
	// is replaced.
	// +optional
	ProxyCertificateSHA256 string `json:"proxyCertificateSHA256,omitempty" protobuf:"bytes,4,opt,name=proxyCertificateSHA256"`
}
