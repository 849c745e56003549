// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"runtime"
)

// pairDir is a pair's set of files and what was found in it. A file that is missing leaves its fields empty; one that
// cannot be parsed leaves its error.
type pairDir struct {
	store Store
	name  string

	certSeen, keySeen bool
	cert              *x509.Certificate
	key               crypto.Signer
	bundle            Bundle
	certErr, keyErr   error
	notes             []string
}

func (d *pairDir) path() string            { return d.store.Path(d.name) }
func (d *pairDir) file(name string) string { return d.store.Path(d.name, name) }

// load reads what is there. A file that exists and cannot be read is an error: nobody knows what would be lost with it.
func (d *pairDir) load() error {
	files, err := d.store.Read(d.name)
	if err != nil {
		return err
	}
	certFile, keyFile := files[CertFile], files[KeyFile]
	if _, d.certSeen = files[CertFile]; d.certSeen {
		d.cert, d.certErr = parseCertificate(certFile.Data)
	}
	if _, d.keySeen = files[KeyFile]; d.keySeen {
		d.key, d.keyErr = ParsePrivateKey(keyFile.Data)
		// Its mode is left alone: a group may have been let in on purpose.
		if mode := keyFile.Mode.Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
			d.notes = append(d.notes, fmt.Sprintf("others can read %s (mode %04o); if that is not wanted: chmod 600 %[1]s", d.file(KeyFile), mode))
		}
	}
	// A bundle that cannot be parsed is the same as none: it is made again from the CA.
	d.bundle, _ = ParseBundle(files[BundleFile].Data)
	return nil
}
