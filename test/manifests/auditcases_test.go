// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// auditCases are requests and the level at which the policy logs them.
var auditCases = []struct {
	name    string
	request authorizer.AttributesRecord
	want    auditinternal.Level
}{
	{"a write", auditCase("create", "widgets", "", "jane"), auditinternal.LevelRequest},
	{"a scale", auditCase("update", "widgets", "scale", "jane"), auditinternal.LevelRequest},
	{"a read", auditCase("list", "widgets", "", "jane"), auditinternal.LevelMetadata},
	{"a controller's list", auditCase("list", "widgets", "", "system:x", "system:serviceaccounts:kube-system"),
		auditinternal.LevelNone},
	{"a controller's delete", auditCase("delete", "widgets", "", "system:x", "system:serviceaccounts:kube-system"),
		auditinternal.LevelRequest},
	{"a review", auditCase("create", "identityreviews", "", "jane"), auditinternal.LevelMetadata},
	{"a stream", auditCase("create", "widgets", "connect", "jane"), auditinternal.LevelMetadata},
	{"health", authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "system:anonymous"}, Verb: "get",
		Path: "/readyz"}, auditinternal.LevelNone},
	{"discovery", authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "get",
		Path: "/apis/workshop.example.com/v1"}, auditinternal.LevelNone},
	{"an unknown path", authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "post", Path: "/x"},
		auditinternal.LevelRequest},
}

func auditCase(verb, resource, subresource, name string, groups ...string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: verb, APIGroup: workshop.GroupName,
		Resource: resource, Subresource: subresource,
		ResourceRequest: true,
	}
}
