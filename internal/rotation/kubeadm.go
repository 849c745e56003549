// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"example.com/extension-apiserver/internal/certs"
)

// directory is a store that reads the front proxy's files of kubeadm as they are, where the set has no directory: front-proxy-client.crt and .key,
// front-proxy-ca.crt and .key.
type directory struct {
	certs.Dir
	wrote func() // see Options
}

// kubeadmFiles are kubeadm's names for the files of a set, which its directory would have.
func kubeadmFiles(dir string) map[string]string {
	ca := filepath.Join(filepath.Dir(dir), certs.FrontProxyCADir+".crt")
	switch filepath.Base(dir) {
	case certs.FrontProxyCADir:
		return map[string]string{certs.CertFile: ca, certs.KeyFile: dir + ".key"}
	case certs.FrontProxyClientDir:
		return map[string]string{certs.CertFile: dir + ".crt", certs.KeyFile: dir + ".key", certs.BundleFile: ca}
	}
	return nil
}

// inKubeadms is true for a set that is in kubeadm's files. There are none on Windows, which has no such links either.
func (d directory) inKubeadms(set string) bool {
	dir := d.Dir.Path(set)
	_, missing := os.Stat(dir)
	_, err := os.Stat(kubeadmFiles(dir)[certs.CertFile])
	return errors.Is(missing, fs.ErrNotExist) && err == nil && runtime.GOOS != "windows"
}

// Path is where a set or a file is.
func (d directory) Path(elem ...string) string {
	path := d.Dir.Path(elem...)
	if len(elem) == 2 && d.inKubeadms(elem[0]) {
		return cmp.Or(kubeadmFiles(filepath.Dir(path))[elem[1]], path)
	}
	return path
}

// Read takes the first certificate in kubeadm's file for the CA, as kubeadm does.
func (d directory) Read(set string, names ...string) (certs.Files, error) {
	if !d.inKubeadms(set) {
		return d.Dir.Read(set, names...)
	}
	files := certs.Files{}
	for file, path := range kubeadmFiles(d.Dir.Path(set)) {
		if len(names) > 0 && !slices.Contains(names, file) {
			continue
		}
		name := filepath.Base(path)
		found, err := certs.Dir(filepath.Dir(path)).Read("", name)
		if err != nil {
			return nil, err
		}
		f, ok := found[name]
		if !ok {
			continue
		}
		if block, _ := pem.Decode(f.Data); block != nil && isCACertificate(path, file) {
			f.Data = pem.EncodeToMemory(block)
		}
		files[file] = f
	}
	return files, nil
}

// adopt moves a set from kubeadm's files to its directory, where certificate and key are replaced in one step, and leaves links under kubeadm's
// names. Nobody reads another content meanwhile. Run again, it completes what was cut short. Files with another content stay: certgen init
// may have made the directory for somebody else.
func (d directory) adopt(set string) error {
	if d.inKubeadms(set) {
		draft := set + ".new"
		files, err := d.Read(set)
		if err == nil {
			err = d.Dir.Write(draft, files)
		}
		if err == nil {
			d.wrote()
			err = d.Dir.Move(draft, set)
		}
		if err != nil {
			return err
		}
		d.wrote()
	}
	have, err := d.Read(set)
	if err != nil {
		return err
	}
	dir := d.Dir.Path(set)
	for _, file := range pairFiles {
		path := kubeadmFiles(dir)[file]
		if path == "" || isCACertificate(path, file) {
			continue // the latter is the first in the client's ca.crt
		}
		if same, err := holds(path, have[file].Data); err != nil {
			return err
		} else if !same {
			continue
		}
		if err := certs.ReplaceLink(filepath.Dir(path), filepath.Join(filepath.Base(dir), file), filepath.Base(path)); err != nil {
			return err
		}
		d.wrote()
	}
	return nil
}

// isCACertificate is true for kubeadm's file of the CA where it stands for the CA, and not for all that is trusted.
func isCACertificate(path, file string) bool {
	return file == certs.CertFile && filepath.Base(path) == certs.FrontProxyCADir+".crt"
}

// holds is true for a file, and no link, with that content.
func holds(path string, content []byte) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return false, nil
	}
	data, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr); err != nil {
		return false, fmt.Errorf("read kubeadm's file: %w", err)
	}
	return bytes.Equal(data, content), nil
}

// checkAdopted refuses where kubeadm's file is there again beside the directory, with another certificate of the same CA: kube-apiserver reads one
// of them, and which one is not known.
func (d directory) checkAdopted(set string, leaf, ca *x509.Certificate) error {
	path := kubeadmFiles(d.Dir.Path(set))[certs.CertFile]
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || d.inKubeadms(set) {
		return nil
	}
	other, err := certs.ReadBundle(path)
	if err != nil || len(other) == 0 || other[0].Equal(leaf) || !signedBy(other[0], ca) {
		return nil
	}
	return &certs.RefusedError{Path: path, Reason: fmt.Sprintf("expected a link to %s, found another certificate of the same CA; move away the one that kube-apiserver does not read",
		d.Dir.Path(set, certs.CertFile))}
}
