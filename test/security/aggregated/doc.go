// SPDX-License-Identifier: Apache-2.0

// Package aggregated tests the security of the server behind a real kube-apiserver: the identity
// of a caller, the server's SubjectAccessReviews about it, and that neither a caller nor an outage
// can change them. The numbers in the names of tests (S1 to S52) are those of the requirements.
package aggregated
