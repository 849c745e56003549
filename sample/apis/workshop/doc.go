// SPDX-License-Identifier: Apache-2.0

// Package workshop defines the name of the API group workshop.example.com. The versions are the
// packages beside it. The others are converted to and from v1, the hub version.
//
// +groupName=workshop.example.com
package workshop
