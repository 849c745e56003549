// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// pairDir is a pair's directory and what was found in it. A file that is missing leaves its fields empty; one that
// cannot be parsed leaves its error.
type pairDir struct {
	name, path string

	certSeen, keySeen bool
	cert              *x509.Certificate
	key               crypto.Signer
	bundle            Bundle
	certErr, keyErr   error
	notes             []string
}

func (d *pairDir) file(name string) string { return filepath.Join(d.path, name) }

// load reads what is there. A file that exists and cannot be read is an error: nobody knows what would be lost with it.
func (d *pairDir) load() error {
	certPEM, certErr := d.read(CertFile)
	keyPEM, keyErr := d.read(KeyFile)
	bundlePEM, bundleErr := d.read(BundleFile)
	if err := errors.Join(certErr, keyErr, bundleErr); err != nil {
		return err
	}
	if d.certSeen = certPEM != nil; d.certSeen {
		d.cert, d.certErr = parseCertificate(certPEM)
	}
	if d.keySeen = keyPEM != nil; d.keySeen {
		d.key, d.keyErr = ParsePrivateKey(keyPEM)
		d.checkMode()
	}
	// A bundle that cannot be parsed is the same as none: it is made again from the CA.
	d.bundle, _ = ParseBundle(bundlePEM)
	return nil
}

// read returns nil without an error for a file that does not exist. A file whose link is not there yet is read where
// the link would lead: its write was cut short, and repairLinks will complete it.
func (d *pairDir) read(name string) ([]byte, error) {
	data, err := os.ReadFile(d.file(name))
	if _, statErr := os.Lstat(d.file(name)); errors.Is(statErr, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(d.path, dataLink, name))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &RefusedError{Path: d.file(name), Reason: fmt.Sprintf("expected a readable file: %v; allow reading it, or move it away", errors.Unwrap(err))}
	case data == nil:
		data = []byte{}
	}
	return data, nil
}

// checkMode notes a key that others can read, and leaves its mode alone: a group may have been let in on purpose.
func (d *pairDir) checkMode() {
	info, err := os.Stat(d.file(KeyFile))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		d.notes = append(d.notes, fmt.Sprintf("others can read %s (mode %04o); if that is not wanted: chmod 600 %[1]s",
			d.file(KeyFile), info.Mode().Perm()))
	}
}
