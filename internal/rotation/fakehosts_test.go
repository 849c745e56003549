// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// given returns the directories of the kube-apiservers, or nil for the default one.
func (f *fakeCluster) given() []string {
	if len(f.proxies) > 1 {
		return f.proxies
	}
	return nil
}

// addProxy adds a kube-apiserver with its own certificate and CA file.
func (f *fakeCluster) addProxy() {
	f.t.Helper()
	f.addProxyOf(certs.FrontProxyCADir)
}

func (f *fakeCluster) addProxyOf(caPath string) {
	f.t.Helper()
	ca, err := certs.ReadCA(filepath.Join(f.dir, caPath), func() time.Time { return begin })
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
	if err != nil {
		f.t.Fatal(err)
	}
	dir := filepath.Join(f.dir, "host-2")
	// Its file contains an additional CA, which the other files do not contain, in a different
	// order.
	other, err := certs.NewCA(certs.CAOptions{Name: "other-front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth,
		Now: func() time.Time { return begin.Add(time.Minute) }})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := pair.Write(dir, certs.Bundle{other.Certificate, ca.Certificate}); err != nil {
		f.t.Fatal(err)
	}
	f.other, f.proxies = other.Certificate, append(f.proxies, dir)
}

// loaded contains the certificate that a kube-apiserver presents, and the time since which its
// file contains another one.
type loaded struct {
	cert    *x509.Certificate
	changed time.Time
	never   bool // it never rereads a file
}

// inUse returns the certificate that the kube-apiserver with the given directory presents.
func (f *fakeCluster) inUse(dir string) (*x509.Certificate, error) {
	cert, err := certs.ReadCertificate(certs.Dir(dir), "")
	if f.kubeadm {
		var pair *certs.KeyPair // certificate and key must always match
		if pair, err = certs.ReadKeyPair(dir + ".crt"); err == nil {
			cert = pair.Certificate
		}
	}
	l := f.slow[dir]
	switch {
	case err != nil || l == nil || cert.Equal(l.cert):
		return cert, err
	case l.never:
	case l.changed.IsZero():
		l.changed = f.now
	case f.now.Sub(l.changed) >= time.Minute:
		*l = loaded{cert: cert}
	}
	return l.cert, nil
}

func (f *fakeCluster) bundleIn(dir string) certs.Bundle {
	data, err := os.ReadFile(f.proxyFile(dir, certs.BundleFile))
	if err != nil {
		f.t.Fatal(err)
	}
	bundle, err := certs.ParseBundle(data)
	if err != nil {
		f.t.Fatal(err)
	}
	return bundle
}

// proxyFile returns the path from which a kube-apiserver reads a file.
func (f *fakeCluster) proxyFile(dir, name string) string {
	if !f.kubeadm {
		return filepath.Join(dir, name)
	}
	return map[string]string{certs.CertFile: dir + ".crt", certs.KeyFile: dir + ".key",
		certs.BundleFile: filepath.Join(f.dir, "front-proxy-ca.crt")}[name]
}

func (f *fakeCluster) appendTo(path, text string) {
	f.t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(data, text...), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// proxyFiles returns, for each host, the content of all files that its kube-apiserver reads.
func (f *fakeCluster) proxyFiles() []string {
	f.t.Helper()
	var out []string
	for _, dir := range f.proxies {
		all := ""
		for _, name := range []string{certs.CertFile, certs.KeyFile, certs.BundleFile} {
			data, err := os.ReadFile(f.proxyFile(dir, name))
			if err != nil {
				f.t.Fatal(err)
			}
			all += string(data)
		}
		out = append(out, all)
	}
	return out
}
