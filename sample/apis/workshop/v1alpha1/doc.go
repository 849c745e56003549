// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the served version v1alpha1 of the API group workshop.example.com: deprecated, and shaped unlike v1,
// with fields of other names in other places. It shows how an old version stays usable without loss: widget_conversion.go
// moves what has a place in v1 and keeps the rest in annotations.
//
// Clients, sample/apis/workshop/install and the generated code use it; it calls nothing but apimachinery.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.workshop.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=example.com/extension-apiserver/sample/apis/workshop/v1
// +k8s:defaulter-gen=TypeMeta
// +k8s:prerelease-lifecycle-gen=true
// +groupName=workshop.example.com
package v1alpha1
