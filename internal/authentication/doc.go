// SPDX-License-Identifier: Apache-2.0

// Package authentication identifies the user of a request, with the authenticators of
// k8s.io/apiserver: first by the front proxy's headers, then by a client certificate of the
// cluster's CA, then by a bearer token (TokenReview). Anonymous requests are accepted for the
// health paths only. Credential records which one accepted a request. Comments call
// k8s.io/apiserver the library.
//
// pkg/apiserver builds the authenticator and installs WithCredential. pkg/registry/identityreview
// reads the Credential.
package authentication
