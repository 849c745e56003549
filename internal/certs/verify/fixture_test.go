// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// epoch is the default current time in tests.
var epoch = time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)

const host = "widgets.demo.svc"

// fixture contains the certificates of a new certgen directory and functions to create those
// that certgen refuses to create.
type fixture struct {
	*testing.T
	servingCA, clientCA *certs.CA
	serving, client     *certs.KeyPair
	openCA              *certs.KeyPair // a CA without any limit, as openssl req -x509 creates it
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t}
	f.servingCA = f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: []string{host}})
	f.clientCA = f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageClientAuth})
	f.serving = f.must(f.servingCA.IssueServing(certs.ServingOptions{DNSNames: []string{host}}))
	f.client = f.must(f.clientCA.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser}))
	f.openCA = f.forge(nil, authority("open-ca"))
	return f
}

func (f *fixture) ca(opts certs.CAOptions) *certs.CA {
	f.Helper()
	opts.Name = "test-ca"
	if opts.Now == nil {
		opts.Now = func() time.Time { return epoch }
	}
	ca, err := certs.NewCA(opts)
	if err != nil {
		f.Fatal(err)
	}
	return ca
}

func (f *fixture) must(pair *certs.KeyPair, err error) *certs.KeyPair {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
	return pair
}

// leaf and authority return templates that verifiers accept.
func leaf(change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(certs.LeafLifetime),
	}
	if change != nil {
		change(c)
	}
	return c
}

func authority(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true, IsCA: true, MaxPathLen: -1,
		KeyUsage:            x509.KeyUsageCertSign,
		PermittedDNSDomains: []string{host}, PermittedDNSDomainsCritical: true,
		NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(certs.CALifetime),
	}
}

// forge signs template without certgen's validation. A nil issuer makes the certificate
// self-signed.
func (f *fixture) forge(issuer *certs.KeyPair, template *x509.Certificate) *certs.KeyPair {
	f.Helper()
	key, err := certs.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	return f.forgeWithKey(issuer, template, key)
}

func (f *fixture) forgeWithKey(issuer *certs.KeyPair, template *x509.Certificate, key crypto.Signer) *certs.KeyPair {
	f.Helper()
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.Certificate, issuer.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		f.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		f.Fatal(err)
	}
	keyPEM, err := certs.EncodePrivateKey(key)
	if err != nil {
		f.Fatal(err)
	}
	return &certs.KeyPair{Certificate: cert, Key: key, CertPEM: certs.Bundle{cert}.PEM(), KeyPEM: keyPEM}
}

func (f *fixture) rsaKey(bits int) crypto.Signer {
	f.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		f.Fatal(err)
	}
	return key
}

func (f *fixture) ed25519Key() crypto.Signer {
	f.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	return key
}

// files maps names to the files of one directory.
type files map[string]certs.File

// pairFiles returns the files of a key pair as certgen stores them.
func pairFiles(pair *certs.KeyPair, cas ...*certs.KeyPair) files {
	out := files{certs.CertFile: {Data: pair.CertPEM, Mode: 0o644}, certs.KeyFile: {Data: pair.KeyPEM, Mode: 0o600}}
	if len(cas) > 0 {
		var bundle []byte
		for _, ca := range cas {
			bundle = append(bundle, ca.CertPEM...)
		}
		out[certs.BundleFile] = certs.File{Data: bundle, Mode: 0o644}
	}
	return out
}

// edit replaces a file's content.
func (fs files) edit(name string, change func([]byte) []byte) files {
	fs[name] = certs.File{Data: change(bytes.Clone(fs[name].Data)), Mode: fs[name].Mode}
	return fs
}

func (fs files) without(name string) files {
	delete(fs, name)
	return fs
}

func (fs files) keyMode(mode os.FileMode) files {
	fs[certs.KeyFile] = certs.File{Data: fs[certs.KeyFile].Data, Mode: mode}
	return fs
}

func (f *fixture) write(dir string, fs files) {
	f.Helper()
	if err := certs.WriteFiles(dir, fs); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) writePlain(dir string, fs files) {
	f.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	for name, file := range fs {
		if err := os.WriteFile(filepath.Join(dir, name), file.Data, file.Mode); err != nil {
			f.Fatal(err)
		}
	}
}

// now returns the time in the options.
func (o Options) now() time.Time { return o.Now }
