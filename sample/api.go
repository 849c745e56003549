// SPDX-License-Identifier: Apache-2.0

// Package sample is the API of the sample: what a team writes for its own.
package sample

import (
	"example.com/extension-apiserver/pkg/apis/openapi"
	"example.com/extension-apiserver/pkg/apis/workshop"
	"example.com/extension-apiserver/pkg/apis/workshop/install"
	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/pkg/registry/gadget"
	"example.com/extension-apiserver/pkg/registry/identityreview"
	"example.com/extension-apiserver/pkg/registry/widget"
)

// API returns what the server serves.
func API() apiserver.API {
	return apiserver.API{
		Name:           "extension-apiserver",
		Group:          workshop.GroupName,
		AddToScheme:    install.AddToScheme,
		StorageVersion: install.StorageVersion().Version,
		OpenAPI:        openapi.GetOpenAPIDefinitions,
		Kinds: []registry.NewStorage{
			widget.NewStorage,
			gadget.NewStorage,
			identityreview.NewStorage,
		},
	}
}
