// SPDX-License-Identifier: Apache-2.0

// Package identity defines the kind IdentityReview, which a server can serve in any version of its
// own group.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.identity
// +k8s:deepcopy-gen=package
package identity
