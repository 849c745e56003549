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

// directory is a Store that reads kubeadm's front-proxy files (front-proxy-client.crt and .key,
// front-proxy-ca.crt and .key) if a set has no directory of its own.
type directory struct{ certs.Dir }

// kubeadmFiles maps the file names of a set to the paths of kubeadm's files.
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

// isCACertificate reports whether file is the CA's certificate, for which kubeadm's file of CAs
// is used.
func isCACertificate(set, file string) bool {
	return file == certs.CertFile && filepath.Base(set) == certs.FrontProxyCADir
}

// usesKubeadmFiles reports whether a set is stored in kubeadm's files. It is always false on
// Windows, which has neither these files nor such links.
func (d directory) usesKubeadmFiles(set string) bool {
	dir := d.Dir.Path(set)
	_, missing := os.Stat(dir)
	_, err := os.Stat(kubeadmFiles(dir)[certs.CertFile])
	return errors.Is(missing, fs.ErrNotExist) && err == nil && runtime.GOOS != "windows"
}

// Path returns the path of a set or a file.
func (d directory) Path(elem ...string) string {
	path := d.Dir.Path(elem...)
	if len(elem) == 2 && d.usesKubeadmFiles(elem[0]) {
		return cmp.Or(kubeadmFiles(filepath.Dir(path))[elem[1]], path)
	}
	return path
}

// Read returns the files of a set. For the CA, it returns the first certificate in kubeadm's
// file, as kubeadm does.
func (d directory) Read(set string, names ...string) (certs.Files, error) {
	if !d.usesKubeadmFiles(set) {
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
		if block, _ := pem.Decode(f.Data); block != nil && isCACertificate(set, file) {
			f.Data = pem.EncodeToMemory(block)
		}
		files[file] = f
	}
	return files, nil
}

// filesToLink lists the files of a set for which kubeadm has a file that is not a link yet. It
// returns an error if one of kubeadm's files differs or is a link to another file, because
// kube-apiserver reads it. It lists no files if the CA did not sign kubeadm's certificate:
// certgen init then created the directory for another purpose.
func (d directory) filesToLink(set string, ca *x509.Certificate) (files []string, err error) {
	have, err := d.Read(set)
	if err != nil {
		return nil, err
	}
	dir := d.Dir.Path(set)
	names := kubeadmFiles(dir)
	if own, err := certs.ReadBundle(names[certs.CertFile]); err == nil && !d.usesKubeadmFiles(set) &&
		!signedBy(own[0], ca) {
		return nil, nil
	}
	for _, file := range pairFiles {
		path := names[file]
		if path == "" || isCACertificate(set, file) { // the latter links to the client's ca.crt
			continue
		}
		target, _ := os.Readlink(path)
		data, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && target == "" || target == linkTarget(set, file):
		case err != nil:
			return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf("expected a readable file: %v", err)}
		case target != "":
			return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf(
				"expected a file, found a link to %s; replace the link with the file", target)}
		case !bytes.Equal(data, have[file].Data):
			return nil, &certs.RefusedError{Path: path, Reason: fmt.Sprintf(
				"expected the content of %s, found other content; overwrite one with the file that kube-apiserver uses",
				d.Dir.Path(set, file))}
		default:
			files = append(files, file)
		}
	}
	return files, nil
}

// linkTarget returns the target of the link with kubeadm's name.
func linkTarget(set, file string) string { return filepath.Join(filepath.Base(set), file) }

// draftDir returns the directory for writing a set before it is moved to its final place in one
// step.
func draftDir(set string) string {
	return filepath.Join(filepath.Dir(set), ".certgen-"+filepath.Base(set))
}

// adoptable lists the sets that may be stored in kubeadm's files: those of the leaves and, if
// the CA is replaced and one of the leaves is next to it, that of the CA.
func (p *procedure) adoptable() (d directory, sets []string) {
	d, ok := p.opts.store.(directory)
	if !ok || p.caDir != certs.FrontProxyCADir {
		return d, nil
	}
	sets = slices.Clone(p.leafDirs)
	parent := func(set string) fs.FileInfo {
		info, _ := os.Stat(filepath.Dir(d.Dir.Path(set)))
		return info
	}
	if p.makeCA != nil && slices.ContainsFunc(p.leafDirs, func(set string) bool {
		return filepath.Base(set) == certs.FrontProxyClientDir && os.SameFile(parent(set), parent(p.caDir))
	}) {
		sets = append(sets, p.caDir)
	}
	return d, sets
}

// adoptKubeadms moves kubeadm's files into directories, in which certificate and key are
// replaced in one step, and creates links with kubeadm's names. Readers see the same content at
// all times. The next run completes an interrupted one.
func (p *procedure) adoptKubeadms() error {
	d, sets := p.adoptable()
	if sets == nil {
		return nil
	}
	ca, err := certs.ReadCertificate(d, p.caDir)
	if err != nil {
		return err
	}
	for _, set := range sets {
		files, err := d.filesToLink(set, ca)
		if err != nil {
			return err
		}
		if d.usesKubeadmFiles(set) {
			if err := p.moveKubeadms(d, set); err != nil {
				return err
			}
		}
		for _, file := range files {
			path := kubeadmFiles(d.Dir.Path(set))[file]
			if err := certs.ReplaceLink(filepath.Dir(path), linkTarget(set, file), filepath.Base(path)); err != nil {
				return err
			}
			p.opts.afterWrite()
		}
	}
	return nil
}

func (p *procedure) moveKubeadms(d directory, set string) error {
	files, err := d.Read(set)
	if err == nil {
		err = d.Remove(draftDir(set))
	}
	if err == nil {
		err = d.Write(draftDir(set), files)
	}
	if err != nil {
		return err
	}
	p.opts.afterWrite()
	defer p.opts.afterWrite()
	return d.Move(draftDir(set), set)
}

// checkKubeadms returns an error if adoptKubeadms cannot adopt the files.
func (p *procedure) checkKubeadms(ca *x509.Certificate) error {
	var errs []error
	d, sets := p.adoptable()
	for _, set := range sets {
		_, err := d.filesToLink(set, ca)
		errs = append(errs, err)
	}
	if p.makeCA != nil && sets != nil && d.usesKubeadmFiles(p.caDir) && !slices.Contains(sets, p.caDir) {
		errs = append(errs, &certs.RefusedError{Path: p.opts.store.Path(p.caDir, certs.CertFile), Reason: fmt.Sprintf(
			"expected %s in --front-proxy-client, found %q; name the directory of the kube-apiserver "+
				"that reads this file", d.Dir.Path(certs.FrontProxyClientDir), p.leafDirs)})
	}
	return errors.Join(errs...)
}
