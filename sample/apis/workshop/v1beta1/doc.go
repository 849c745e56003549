// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is the served version v1beta1 of the API group workshop.example.com. Its kinds
// have the same fields as those of v1. Its tags are the source of the OpenAPI schema, the defaults,
// the conversions and the generated validation (make generate). The tags are repeated here because
// the server validates the version of the request.
//
// Clients, sample/apis/workshop/install and the generated code import it. It imports only
// apimachinery and v1.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.workshop.v1beta1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=example.com/extension-apiserver/sample/apis/workshop/v1
// +k8s:defaulter-gen=TypeMeta
// +groupName=workshop.example.com
package v1beta1
