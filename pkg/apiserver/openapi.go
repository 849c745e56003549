// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// servedKinds returns a namer that leaves internal versions out of the group, version and kind of a definition. A Go
// type that is registered as internal and in a served version has both, and clients fail on a version that is not
// served.
func servedKinds(definitionName func(string) (string, spec.Extensions)) func(string) (string, spec.Extensions) {
	return func(name string) (string, spec.Extensions) {
		const gvks = "x-kubernetes-group-version-kind"
		name, extensions := definitionName(name)
		if kinds, ok := extensions[gvks].([]any); ok {
			extensions[gvks] = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
				fields, ok := kind.(map[string]any)
				return ok && fields["version"] == runtime.APIVersionInternal
			})
		}
		return name, extensions
	}
}
