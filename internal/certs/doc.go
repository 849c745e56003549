// SPDX-License-Identifier: Apache-2.0

// Package certs makes the keys and certificates of an aggregated API server and keeps them in files: certificate
// authorities of the least power, serving and client leaves, trust bundles, and their inspection. It knows X.509 and
// file systems and nothing of Kubernetes.
//
// cfssl makes every signature, crypto/x509 verifies. Every issued certificate is parsed again and compared with what
// was asked before anyone sees it.
//
// Init keeps a directory with CAs and their leaves, as the table of sets says. Request, Accept and
// SignRequest are for CAs whose key is elsewhere. Each pair's directory switches certificate and key together (see
// WriteFiles).
package certs
