// SPDX-License-Identifier: Apache-2.0

// Package certs creates the keys and certificates of an aggregated API server and stores them in
// files. It handles certificate authorities with minimal permissions, serving and client leaves,
// trust bundles, and their inspection. It deals with X.509 and file systems and has no knowledge
// of Kubernetes.
//
// cfssl signs all certificates, and crypto/x509 verifies them. Every issued certificate is
// parsed again and compared with the request before it is used.
//
// Init maintains a directory of CAs and their leaves, as defined by the table of certificate
// sets. Request, Accept and SignRequest support CAs whose keys are elsewhere. Each key pair's
// directory switches certificate and key together (see WriteFiles).
package certs
