// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"path/filepath"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// Held is what a file, or a part of a cluster, serves, stores or trusts.
type Held struct {
	Source string // file, endpoint, Secret, APIService or ConfigMap
	Object string // as findings call it; of a file its path
	Name   string // as a report calls it; empty means Object, and for CAs their common name
	// Serving is the certificate that it serves or stores; nil where it only has CAs.
	Serving *x509.Certificate
	Trusted certs.Bundle // CAs
	Beside  certs.Bundle // what else the file of a certificate holds, and that itself: CAs that nobody trusts for being there
	HasKey  bool         // the key of the first one in Beside is there too
	Fix     string       // what to do when one of them is due
	Missing bool         // there is a key without its certificate
	// Problems are why nothing could be read.
	Problems []Finding
}

// InFiles reads what files and directories and everything below them hold, as Paths does, CAs first. An error is a path
// that does not exist or holds no certificates.
func InFiles(paths []string, now time.Time) ([]Held, error) {
	targets, err := load(paths, Options{Now: now})
	if err != nil {
		return nil, err
	}
	var authorities, others []Held
	for _, t := range targets {
		h := Held{Source: sourceFile, Object: t.path, Name: t.name}
		switch {
		case t.purpose == KeyOnly && filepath.Base(t.path) != certs.KeyFile: // such as kubeadm's sa.key
		case t.leaf == nil:
			h.Missing, h.Problems = t.cert == nil, Sort(Run(checks, t, t.path))
			others = append(others, h)
		case t.purpose == Authority:
			h.Beside, h.HasKey = t.cert.Certificates, t.key != nil
			authorities = append(authorities, h)
		default:
			h.Serving, h.Beside = t.leaf, t.cert.Certificates
			others = append(others, h)
			if t.bundle != nil {
				others = append(others, Held{Source: sourceFile, Object: t.bundle.path, Name: t.name + "/" + certs.BundleFile, Trusted: t.bundle.Certificates})
			}
		}
	}
	return append(authorities, others...), nil
}
