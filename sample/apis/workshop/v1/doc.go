// SPDX-License-Identifier: Apache-2.0

// Package v1 is the served and stored version v1 of the API group workshop.example.com. Its tags
// are the source of the OpenAPI schema, the defaults, the conversions and the generated validation
// (make generate).
//
// Clients, sample/apis/workshop/install and the generated code import it. It imports only
// apimachinery.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.workshop.v1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=workshop.example.com
package v1
