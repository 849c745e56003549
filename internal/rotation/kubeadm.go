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

// directory is a store that reads the front proxy's files of kubeadm as they are, where the set has no directory:
// front-proxy-client.crt and .key, front-proxy-ca.crt and .key.
type directory struct{ certs.Dir }

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

// isCACertificate is true for kubeadm's file of CAs where it stands for its first one.
func isCACertificate(set, file string) bool {
	return file == certs.CertFile && filepath.Base(set) == certs.FrontProxyCADir
}

// usesKubeadmFiles is true for a set that is in kubeadm's files. There are none on Windows, which has no such links
// either.
func (d directory) usesKubeadmFiles(set string) bool {
	dir := d.Dir.Path(set)
	_, missing := os.Stat(dir)
	_, err := os.Stat(kubeadmFiles(dir)[certs.CertFile])
	return errors.Is(missing, fs.ErrNotExist) && err == nil && runtime.GOOS != "windows"
}

// Path is where a set or a file is.
func (d directory) Path(elem ...string) string {
	path := d.Dir.Path(elem...)
	if len(elem) == 2 && d.usesKubeadmFiles(elem[0]) {
		return cmp.Or(kubeadmFiles(filepath.Dir(path))[elem[1]], path)
	}
	return path
}

// Read takes the first certificate in kubeadm's file for the CA, as kubeadm does.
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

// filesToLink lists the files of a set that kubeadm has too, and not as links yet. A file or link of kubeadm's that
// leads to something else is refused: kube-apiserver reads it. None is listed where kubeadm's certificate is not of the
// CA: certgen init made the directory for somebody else.
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
		if path == "" || isCACertificate(set, file) { // the latter leads to the client's ca.crt
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

// linkTarget is where the link under kubeadm's name leads.
func linkTarget(set, file string) string { return filepath.Join(filepath.Base(set), file) }

// draftDir is where a set is made that takes its place in one step.
func draftDir(set string) string {
	return filepath.Join(filepath.Dir(set), ".certgen-"+filepath.Base(set))
}

// adoptable lists the sets that kubeadm may have: those of the leaves, and that of the CA where it is replaced and one
// of the leaves is beside it.
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

// adoptKubeadms moves kubeadm's files into directories, where certificate and key are replaced in one step, and leaves
// links under kubeadm's names. Nobody reads another content meanwhile. Run again, it completes what was cut short.
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

// checkKubeadms refuses what could not be adopted.
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
