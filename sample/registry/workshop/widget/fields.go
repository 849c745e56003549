// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/sample/apis/workshop/v1alpha1"
	"example.com/extension-apiserver/sample/apis/workshop/v1beta1"
)

// fieldPaths says where a version has the fields that hand-written rules speak of: an error that names a field of
// another version helps nobody. Generated rules know the fields of their own version.
type fieldPaths struct {
	replicas, maxReplicas *field.Path
	// material is where a version has the material of a part if it has no field, and so no tag, for it.
	material func(part string) *field.Path
	// selectable are the fields by which objects can be selected, and their names in selection.go.
	selectable map[string]string
}

var current = fieldPaths{
	replicas: field.NewPath("spec", "replicas"), maxReplicas: field.NewPath("spec", "maxReplicas"),
	selectable: map[string]string{"spec.model": "spec.model", "spec.grade": "spec.grade"},
}

// versions is the one list of them.
var versions = map[schema.GroupVersion]fieldPaths{
	v1.SchemeGroupVersion:      current,
	v1beta1.SchemeGroupVersion: current,
	v1alpha1.SchemeGroupVersion: {
		replicas: field.NewPath("spec", "scale", "desired"), maxReplicas: field.NewPath("spec", "scale", "limit"),
		material: func(part string) *field.Path {
			return field.NewPath("metadata", "annotations").Key(v1alpha1.MaterialPrefix + part)
		},
		selectable: map[string]string{"spec.design": "spec.model", "spec.quality": "spec.grade"},
	},
}

// requestPaths returns those of the version of the request.
func requestPaths(ctx context.Context) fieldPaths {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		if paths, ok := versions[schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}]; ok {
			return paths
		}
	}
	return versions[install.StorageVersion()]
}

// replicasPaths is where each version has replicas, for the subresource scale.
func replicasPaths() managedfields.ResourcePathMappings {
	mappings := managedfields.ResourcePathMappings{}
	for gv, paths := range versions {
		var path fieldpath.Path
		for name := range strings.SplitSeq(paths.replicas.String(), ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		mappings[gv.String()] = path
	}
	return mappings
}
