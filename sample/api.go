// SPDX-License-Identifier: Apache-2.0

// Package sample defines the sample API. It shows what a team writes for its own API.
package sample

import (
	"example.com/extension-apiserver/pkg/apiserver"
	"example.com/extension-apiserver/pkg/embeddedetcd"
	"example.com/extension-apiserver/pkg/registry"
	"example.com/extension-apiserver/sample/apis/workshop"
	"example.com/extension-apiserver/sample/apis/workshop/install"
	"example.com/extension-apiserver/sample/calibrator"
	"example.com/extension-apiserver/sample/grades"
	"example.com/extension-apiserver/sample/openapi"
	"example.com/extension-apiserver/sample/registry/workshop/gadget"
	"example.com/extension-apiserver/sample/registry/workshop/part"
	"example.com/extension-apiserver/sample/registry/workshop/widget"
	validation "example.com/extension-apiserver/sample/validation/workshop"
)

// API returns the API that the server serves.
func API() apiserver.API {
	calibrator, stock := calibrator.New(), &part.File{}
	return apiserver.API{
		Name: "extension-apiserver",
		Groups: []apiserver.Group{{
			Name:           workshop.GroupName,
			AddToScheme:    install.AddToScheme,
			Validation:     validation.AddToScheme,
			StorageVersion: install.StorageVersion().Version,
			IdentityReview: "v1",
			Kinds: []registry.NewStorage{
				widget.Kind.NewStorage,
				gadget.Kind.NewStorage,
				part.Kind(stock.List).NewStorage,
			},
		}},
		Admission:            []apiserver.AdmissionPlugin{grades.Plugin},
		OpenAPI:              openapi.GetOpenAPIDefinitions,
		EmbeddedEtcd:         embeddedetcd.Server{},
		Flags:                []apiserver.Flags{calibrator, stock},
		PostStart:            map[string]apiserver.PostStartHook{"calibrator": calibrator.Start},
		NamespacePermissions: calibrator.Permissions(),
	}
}
