// SPDX-License-Identifier: Apache-2.0

// Package authentication decides who a request comes from, with the authenticators of k8s.io/apiserver: the front
// proxy's headers first, then a client certificate of the cluster's CA, then a bearer token (TokenReview). Anonymous
// requests are accepted for the health paths only. Its Credential records what accepted a request.
//
// pkg/apiserver builds the authenticator and installs WithCredential; pkg/registry/identityreview reads the Credential.
package authentication
