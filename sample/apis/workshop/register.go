// SPDX-License-Identifier: Apache-2.0

package workshop

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupName is the API group that this server serves.
const GroupName = "workshop.example.com"

// Resource qualifies a resource name with the group, for errors and storage.
func Resource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: GroupName, Resource: resource}
}
