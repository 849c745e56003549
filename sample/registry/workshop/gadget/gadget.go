// SPDX-License-Identifier: Apache-2.0

// Package gadget defines the kind Gadget, the smallest complete kind. It shows how much code a
// new kind needs.
package gadget

import (
	"example.com/extension-apiserver/pkg/registry"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// Kind is the kind Gadget.
var Kind = registry.Kind[*v1.Gadget]{
	ClusterScoped: true,
	Categories:    []string{"workshop"},
	Columns: []registry.Column[*v1.Gadget]{
		{Name: "Purpose", Description: "Use of the gadget", Value: func(g *v1.Gadget) any { return g.Spec.Purpose }},
	},
}
