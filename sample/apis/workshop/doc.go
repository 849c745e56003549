// SPDX-License-Identifier: Apache-2.0

// Package workshop holds the internal ("hub") types of the API group workshop.example.com: the one form that the
// registry works with and that every served version is converted to and from. The versions are the packages beside it.
//
// sample/registry/workshop and the conversion functions of the versions use it; it imports nothing but apimachinery.
//
// +k8s:deepcopy-gen=package
// +groupName=workshop.example.com
package workshop
