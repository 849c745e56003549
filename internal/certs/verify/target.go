// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/certs"
)

// target is one certificate with its key, the other certificates that the server sends, and the
// CAs that its peers trust.
type target struct {
	name    string // of its directory, or of a file other than tls.crt
	path    string // of the certificate, or of the key if there is no certificate
	purpose Purpose
	opts    Options

	cert, key, bundle *pemFile // nil for a file that does not exist
	leaf              *x509.Certificate
	seen              certs.Bundle // every CA in any file

	serverName string // of a Serving certificate; "" if unknown
	refusal    error  // the peer's verification error, nil if it accepts the certificate
	unchecked  bool   // no file contains a CA that could have signed it
}

// isSkipped reports whether dir contains a replaced CA, or a key of certgen request that has no
// certificate yet.
func isSkipped(dir string) bool {
	return certs.IsRetired(dir) || filepath.Base(dir) == certs.PendingDir
}

// load groups the files below paths by certificate, in the order of the paths and, within a
// directory, of the names.
func load(paths []string, opts Options) ([]*target, error) {
	var targets []*target
	var errs []error
	done := map[string]bool{}
	for _, path := range paths {
		files, err := filesBelow(path)
		errs = append(errs, err)
		for _, file := range files {
			dir := filepath.Dir(file)
			if isSkipped(dir) && filepath.Clean(path) != dir && filepath.Clean(path) != file {
				continue
			}
			if certFile := certificateOf(file); !done[certFile] {
				done[certFile] = true
				targets = append(targets, newTarget(certFile, opts))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var seen certs.Bundle
	for _, t := range targets {
		for _, f := range t.files() {
			for _, cert := range f.Certificates {
				if cert.IsCA && !seen.Contains(cert) {
					seen = append(seen, cert)
				}
			}
		}
	}
	for _, t := range targets {
		t.seen = seen
		t.verify()
	}
	return targets, nil
}

// keyEndings are the endings of key file names: tls.key belongs to tls.crt and, with cfssl's
// names, a-key.pem to a.pem.
var keyEndings = []string{"-key.pem", ".key"}

// certificateOf returns the certificate file next to a key or bundle file, or otherwise the file
// itself.
func certificateOf(file string) string {
	dir, base := filepath.Split(file)
	if base == certs.BundleFile && exists(dir+certs.CertFile) {
		return dir + certs.CertFile
	}
	for _, ending := range keyEndings {
		stem, ok := strings.CutSuffix(file, ending)
		if !ok {
			continue
		}
		for _, ext := range extensions {
			if ext != ".key" && exists(stem+ext) {
				return stem + ext
			}
		}
	}
	return file
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// newTarget reads the files of one certificate, or of a key without a certificate.
func newTarget(path string, opts Options) *target {
	dir, base := filepath.Split(path)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	t := &target{name: stem, path: path, opts: opts, purpose: Any}
	if base == certs.CertFile || base == certs.KeyFile {
		// For a directory given as ".", only the file system has the name.
		if abs, err := filepath.Abs(dir); err == nil {
			t.name = filepath.Base(abs)
		}
		t.bundle = readFile(dir + certs.BundleFile)
	}
	f := readFile(path)
	if f != nil && len(f.Certificates) == 0 && (f.KeyBlocks > 0 || strings.HasSuffix(base, ".key")) {
		t.key, t.purpose = f, KeyOnly
		return t
	}
	t.cert = f
	for _, ending := range keyEndings {
		if t.key == nil {
			t.key = readFile(strings.TrimSuffix(path, filepath.Ext(path)) + ending)
		}
	}
	if t.key == nil && f != nil && f.KeyBlocks > 0 {
		t.key = f // certificate and key in one file
	}
	if f != nil && len(f.Certificates) > 0 {
		t.leaf = f.Certificates[0]
		t.purpose = purposeOf(t.name, t.leaf, opts)
		if t.purpose == Serving {
			t.serverName = serverNameOf(t.leaf, opts)
		}
	}
	return t
}

// files returns the existing files, each once.
func (t *target) files() []*pemFile {
	var out []*pemFile
	for _, f := range []*pemFile{t.cert, t.key, t.bundle} {
		if f != nil && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// verify verifies the certificate as its peers do. It does not verify names; checkServerName
// does, so that both problems can be reported.
func (t *target) verify() {
	if t.leaf == nil || !t.purpose.leaf() {
		return
	}
	roots, between := t.trusted()
	if t.unchecked = t.bundle == nil && len(t.issuers(t.leaf)) == 0; t.unchecked {
		return
	}
	_, t.refusal = t.leaf.Verify(x509.VerifyOptions{
		Roots: roots.Pool(), Intermediates: between.Pool(), CurrentTime: t.opts.Now,
		KeyUsages: []x509.ExtKeyUsage{t.purpose.usage()},
	})
}

// trusted returns the CAs that the peers trust and the possible intermediate CAs. Peers trust
// the ca.crt next to the certificate. If it does not exist, all roots in any file are used
// instead.
func (t *target) trusted() (roots, between certs.Bundle) {
	sent := t.cert.Certificates[1:]
	if t.bundle != nil {
		return t.bundle.Certificates, sent
	}
	for _, ca := range t.seen {
		if bytes.Equal(ca.RawSubject, ca.RawIssuer) {
			roots = append(roots, ca)
		} else {
			between = append(between, ca)
		}
	}
	return roots, slices.Concat(sent, between)
}

// issuers returns the available CAs that have the name of cert's issuer and whose key signed it.
func (t *target) issuers(cert *x509.Certificate) certs.Bundle {
	roots, between := t.trusted()
	return slices.DeleteFunc(slices.Concat(roots, between), func(ca *x509.Certificate) bool {
		return !bytes.Equal(ca.RawSubject, cert.RawIssuer) || cert.CheckSignatureFrom(ca) != nil
	})
}

// refusedFor reports whether verification failed for the given reason.
func (t *target) refusedFor(reason x509.InvalidReason) bool {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](t.refusal)
	return ok && invalid.Reason == reason
}

// Purpose is the purpose of a certificate, which determines how it is verified, or the role of a
// container.
type Purpose string

// The purposes.
const (
	Serving    Purpose = "serving"     // of the API server; kube-aggregator verifies it
	Server     Purpose = "server"      // of another server
	FrontProxy Purpose = "front-proxy" // of kube-apiserver; the request-header authenticator verifies it
	Client     Purpose = "client"      // of another client
	Authority  Purpose = "CA"
	Any        Purpose = "any" // unknown
	KeyOnly    Purpose = "key" // a key without a certificate
)

// known maps names of directories, and of files without their extension, to the purposes of
// their certificates. A name that ends with "-ca" belongs to a CA.
var known = map[string]Purpose{
	certs.ServingDir:          Serving,
	certs.FrontProxyClientDir: FrontProxy,
	// konnectivity's key pairs: its server has one certificate for kube-apiserver and one for
	// agents.
	certs.KonnectivityServerDir:          Server,
	certs.KonnectivityAgentServerDir:     Server,
	certs.KonnectivityAPIServerClientDir: Client,
	certs.KonnectivityAgentDir:           Client,
}

// purposeOf returns the purpose for a known name and otherwise derives it from the certificate.
func purposeOf(name string, cert *x509.Certificate, opts Options) Purpose {
	if p, ok := known[name]; ok {
		return p
	}
	server, client := certs.Permits(cert, x509.ExtKeyUsageServerAuth), certs.Permits(cert, x509.ExtKeyUsageClientAuth)
	switch {
	case strings.HasSuffix(name, "-ca") || cert.IsCA:
		return Authority
	case server == client:
		return Any
	case server && opts.Service.Name != "":
		return Serving
	case server:
		return Server
	case opts.AllowedNames != nil:
		return FrontProxy
	default:
		return Client
	}
}

// usage returns the extended key usage that the peer's verifier requires.
func (p Purpose) usage() x509.ExtKeyUsage {
	switch p {
	case Serving, Server:
		return x509.ExtKeyUsageServerAuth
	case FrontProxy, Client:
		return x509.ExtKeyUsageClientAuth
	default:
		return x509.ExtKeyUsageAny
	}
}

func (p Purpose) leaf() bool { return p != Authority && p != KeyOnly }

// serviceName matches names of the form that kube-aggregator verifies.
var serviceName = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+\.svc$`)

// serverNameOf returns the name that kube-aggregator verifies: that of the given Service, or
// else the first name in the certificate that has the form of a Service's. It returns "" if
// there is neither.
func serverNameOf(cert *x509.Certificate, opts Options) string {
	if opts.Service.Name != "" {
		return opts.Service.ServerName()
	}
	if i := slices.IndexFunc(cert.DNSNames, serviceName.MatchString); i >= 0 {
		return cert.DNSNames[i]
	}
	return ""
}
