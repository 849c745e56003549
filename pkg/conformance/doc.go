// SPDX-License-Identifier: Apache-2.0

// Package conformance checks that a resource behaves as those of the built-in kinds do: any resource of any API server
// that is reached through a kube-apiserver, such as that of an aggregated API, of a CustomResourceDefinition, or a
// built-in kind.
//
// A check has an id, a level, and the text that says so: an enhancement proposal (KEP), the API concepts or the API
// conventions. Most of what the checks need they find by discovery; what a valid object is, the caller says:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Target{
//			Config: config, Resource: "backupplans.v1.backup.example.org", Sample: sample,
//		})
//	}
//
// A run makes objects of its own, in namespaces of its own where the resource has them, at most a few hundred at a
// time, and deletes them.
package conformance
