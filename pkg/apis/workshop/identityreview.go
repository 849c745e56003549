// SPDX-License-Identifier: Apache-2.0

package workshop

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { register(&IdentityReview{}) }

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IdentityReview is the internal form of the kind; its fields are documented in the served version.
type IdentityReview struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Status IdentityReviewStatus
}

// IdentityReviewStatus is what the server saw of the caller.
type IdentityReviewStatus struct {
	UserInfo      *authenticationv1.UserInfo
	Authenticator string
	ProxySubject  string
}
