// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// readFiles reads the files of a pair's directory with their modes; those that are not there are left out.
func readFiles(dir string) (map[string]certs.File, error) {
	files := map[string]certs.File{}
	for _, name := range []string{certs.CertFile, certs.KeyFile, certs.BundleFile} {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read pair: %w", err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read mode: %w", err)
		}
		files[name] = certs.File{Data: data, Mode: info.Mode().Perm()}
	}
	if _, ok := files[certs.CertFile]; !ok {
		return nil, &certs.RefusedError{Path: filepath.Join(dir, certs.CertFile), Reason: "expected a certificate, found none; make it with certgen init"}
	}
	return files, nil
}

func readCertificate(dir string) (*x509.Certificate, error) {
	path := filepath.Join(dir, certs.CertFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	bundle, err := certs.ParseBundle(data)
	if err != nil {
		return nil, &certs.RefusedError{Path: path, Reason: err.Error()}
	}
	if len(bundle) != 1 {
		return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf("expected one certificate, found %d", len(bundle))}
	}
	return bundle[0], nil
}

// readCA reads a CA that can sign.
func readCA(dir string, now func() time.Time) (*certs.CA, error) {
	cert, err := os.ReadFile(filepath.Join(dir, certs.CertFile))
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, certs.KeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &certs.RefusedError{Path: filepath.Join(dir, certs.KeyFile),
			Reason: "expected the CA's key, found none; have the certificate signed where the key is, with certgen request and certgen accept, or rotate the CA"}
	}
	if err != nil {
		return nil, fmt.Errorf("read key of CA: %w", err)
	}
	ca, err := certs.ParseCA(cert, key, now)
	if err != nil {
		return nil, &certs.RefusedError{Path: dir, Reason: err.Error()}
	}
	return ca, nil
}
