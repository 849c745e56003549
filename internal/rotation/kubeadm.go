// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"

	"example.com/extension-apiserver/internal/certs"
)

// directory is a store that reads the front proxy's files of kubeadm as they are: front-proxy-client.crt and .key, front-proxy-ca.crt and .key.
// The first write of a pair moves them into the directory of the pair, where certificate and key change in one step, and leaves links to it under
// kubeadm's names.
type directory struct {
	certs.Dir
	wrote func() // see Options
}

// kubeadmFile is what kubeadm calls a file of a set, and empty for one that it does not have.
func (d directory) kubeadmFile(set, file string) string {
	path := d.Dir.Path(set)
	name := filepath.Base(path)
	switch {
	case name != certs.FrontProxyCADir && name != certs.FrontProxyClientDir:
		return ""
	case file == certs.BundleFile && name == certs.FrontProxyClientDir:
		return filepath.Join(filepath.Dir(path), certs.FrontProxyCADir+".crt")
	case file == certs.CertFile:
		return path + ".crt"
	case file == certs.KeyFile:
		return path + ".key"
	}
	return ""
}

// Path is kubeadm's name as long as kubeadm's certificate is there and no directory for the set.
func (d directory) Path(elem ...string) string {
	if len(elem) == 2 {
		_, missing := os.Stat(d.Dir.Path(elem[0]))
		_, err := os.Stat(d.kubeadmFile(elem[0], certs.CertFile))
		if name := d.kubeadmFile(elem[0], elem[1]); err == nil && missing != nil && name != "" {
			return name
		}
	}
	return d.Dir.Path(elem...)
}

// Read reads kubeadm's files where the set has none. The CA is the first in kubeadm's file, as for kubeadm.
func (d directory) Read(set string, names ...string) (certs.Files, error) {
	files, err := d.Dir.Read(set, names...)
	if files != nil || err != nil {
		return files, err
	}
	if len(names) == 0 {
		names = pairFiles
	}
	for _, name := range names {
		dir, file := filepath.Split(d.kubeadmFile(set, name))
		if file == "" {
			continue
		}
		found, err := certs.Dir(dir).Read("", file)
		if err != nil {
			return nil, err
		}
		if f, ok := found[file]; ok {
			if files == nil {
				files = certs.Files{}
			}
			if block, _ := pem.Decode(f.Data); block != nil && name == certs.CertFile && file == certs.FrontProxyCADir+".crt" {
				f.Data = pem.EncodeToMemory(block)
			}
			files[name] = f
		}
	}
	return files, nil
}

// Write replaces the set, after it has moved kubeadm's files.
func (d directory) Write(set string, files certs.Files) error {
	if err := d.moveKubeadms(set); err != nil {
		return err
	}
	return d.Dir.Write(set, files)
}

// moveKubeadms does nothing where the files are links already, or not those of the set: certgen init may have made that for somebody else.
func (d directory) moveKubeadms(set string) error {
	have, err := d.Read(set)
	if err != nil {
		return err
	}
	moved := false
	for _, name := range pairFiles {
		path := d.kubeadmFile(set, name)
		if path == "" || name == certs.CertFile && filepath.Base(path) == certs.FrontProxyCADir+".crt" { // which the set of the client has
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, have[name].Data) {
			continue
		}
		if !moved {
			if err := d.Dir.Write(set, have); err != nil {
				return err
			}
			d.wrote()
			moved = true
		}
		dir, file := filepath.Split(path)
		if err := certs.ReplaceLink(dir, filepath.Join(filepath.Base(d.Dir.Path(set)), name), file); err != nil {
			return err
		}
		d.wrote()
	}
	return nil
}
