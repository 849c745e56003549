// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the served version v1alpha1 of the API group workshop.example.com. It is
// deprecated. Its fields have other names and places than those of v1. It shows how an old version
// remains usable without loss of data: widget_conversion.go moves the fields that v1 has, and keeps
// the others in annotations.
//
// Clients, sample/apis/workshop/install and the generated code import it. It imports only
// apimachinery and v1.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.workshop.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=example.com/extension-apiserver/sample/apis/workshop/v1
// +k8s:defaulter-gen=TypeMeta
// +k8s:prerelease-lifecycle-gen=true
// +groupName=workshop.example.com
package v1alpha1
