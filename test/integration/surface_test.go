// SPDX-License-Identifier: Apache-2.0

package integration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// surface is the description of a resource that clients get. The files of the kinds fill
// surfaces. A new subresource, verb or column needs a new entry there.
type surface struct {
	// resource is its discovery entry, which is the same in each version that has the kind.
	resource metav1.APIResource
	// subresources have names such as "widgets/status".
	subresources []metav1.APIResource
	// columns are those of kubectl get. It is empty for a resource that cannot be read.
	columns []metav1.TableColumnDefinition
}

var surfaces = []surface{{
	resource: metav1.APIResource{Name: "identityreviews", SingularName: "identityreview", Kind: "IdentityReview",
		Verbs: metav1.Verbs{"create"}},
}}

// everyVerb lists the verbs of a stored resource.
var everyVerb = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
