// SPDX-License-Identifier: Apache-2.0

// Package workshop has the name of the API group workshop.example.com. The versions are the packages beside it; v1 is
// the hub, which the others are converted to and from.
//
// +groupName=workshop.example.com
package workshop
