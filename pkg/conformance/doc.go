// SPDX-License-Identifier: Apache-2.0

// Package conformance checks that a resource behaves like those of the built-in kinds. The
// resource can be any that is reached through a kube-apiserver, such as a resource of an
// aggregated API, of a CustomResourceDefinition, or of a built-in kind.
//
// A check has an ID, a level, and a source: an enhancement proposal (KEP), the API concepts or
// the API conventions. The checks get most of their information from discovery. The caller
// provides a valid object:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Target{
//			Config: config, Resource: "backupplans.v1.backup.example.org", Sample: sample,
//		})
//	}
//
// A run creates its own objects, at most a few hundred at a time, and deletes them. If the
// resource is namespaced, it creates them in its own namespaces.
package conformance
