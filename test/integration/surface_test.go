// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// surface is what clients are told of a resource. The files of the kinds fill surfaces; a new subresource, verb or
// column is a new entry there.
type surface struct {
	// resource is its entry in discovery, which is the same in each version that has the kind.
	resource metav1.APIResource
	// subresources have names such as "widgets/status".
	subresources []metav1.APIResource
	// columns are those of kubectl get; none for what cannot be read.
	columns []metav1.TableColumnDefinition
}

var surfaces = []surface{{
	resource: metav1.APIResource{Name: "identityreviews", SingularName: "identityreview", Kind: "IdentityReview",
		Verbs: metav1.Verbs{"create"}},
}}

// everyVerb is what a resource offers that is stored.
var everyVerb = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
