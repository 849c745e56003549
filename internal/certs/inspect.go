// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Inspection is what was found in files.
type Inspection struct {
	APIVersion  string           `json:"apiVersion"`
	Kind        string           `json:"kind"` // Inspection
	GeneratedAt time.Time        `json:"generatedAt"`
	Files       []FileInspection `json:"files"` // in the order given; those of a directory by name
}

// FileInspection describes one file.
type FileInspection struct {
	Path         string            `json:"path"`
	Certificates []CertificateInfo `json:"certificates,omitempty"` // in the order of the file
	Chain        []string          `json:"chain,omitempty"`        // subjects from the first certificate up, as far as seen
	Complete     bool              `json:"chainComplete"`          // Chain ends with a self-signed certificate
	Key          *KeyInspection    `json:"key,omitempty"`
	Aside        bool              `json:"aside,omitempty"`    // in the directory of a CA that was replaced, see IsAside
	Findings     []string          `json:"findings,omitempty"` // what is wrong

	certs Bundle
}

// KeyInspection describes the private key that belongs to a file, never its content.
type KeyInspection struct {
	Path string `json:"path"`
	Type string `json:"type"`
	// MatchesCertificate is nil for a key without a certificate beside it.
	MatchesCertificate *bool `json:"matchesCertificate,omitempty"`
}

// HasFindings tells whether anything is wrong in any file.
func (i *Inspection) HasFindings() bool {
	return slices.ContainsFunc(i.Files, func(f FileInspection) bool { return len(f.Findings) > 0 })
}

// extensions of the files that are looked at in a directory.
var extensions = []string{".crt", ".cert", ".cer", ".pem", ".key"}

// Inspect reads files and directories and everything below them. In a directory it reads files named like
// certificates and keys (.crt, .cert, .cer, .pem, .key) and passes over names that begin with "..", which hold the
// same again (see WriteFiles). A certificate that expired or has not begun, a key that does not match, and a file
// that cannot be read as PEM are findings; a path that does not exist, or a directory with nothing in it, is an error. The
// end of a CA that was replaced and moved aside is no finding.
func Inspect(paths []string, now time.Time) (*Inspection, error) {
	out := &Inspection{APIVersion: APIVersion, Kind: "Inspection", GeneratedAt: now.UTC().Truncate(time.Second)}
	var files []string
	var errs []error
	for _, path := range paths {
		found, err := FilesBelow(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("inspect: %w", err))
		}
		for _, f := range found {
			if !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var all Bundle
	for _, path := range files {
		f := inspectFile(path, now)
		all = append(all, f.certs...)
		all = append(all, bundleBeside(path)...)
		out.Files = append(out.Files, f)
	}
	for i := range out.Files {
		f := &out.Files[i]
		if len(f.certs) > 0 {
			f.Chain, f.Complete = chainOf(f.certs[0], all)
		}
	}
	return out, nil
}

// FilesBelow returns path itself if it is a file, and otherwise the files named like certificates and keys in it and
// all below it, by name. It passes over names that begin with "..", which hold the same again (see WriteFiles). A path
// that does not exist, and a directory with no such file, is an error.
func FilesBelow(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{filepath.Clean(path)}, nil
	}
	var out []string
	// With a separator at its end, a symlink is the directory to which it leads. WalkDir follows none otherwise.
	root := filepath.Clean(path) + string(filepath.Separator)
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), "..") && p != root {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(p)) {
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("expected certificates in %s, found no file named %s", path, "*"+strings.Join(extensions, ", *"))
	}
	return out, err
}

// inspectFile never fails: what is wrong with a file is a finding.
func inspectFile(path string, now time.Time) FileInspection {
	f := FileInspection{Path: path, Aside: IsAside(filepath.Dir(path))}
	find := func(format string, args ...any) { f.Findings = append(f.Findings, fmt.Sprintf(format, args...)) }
	data, err := os.ReadFile(path)
	if err != nil {
		find("%v", err)
		return f
	}
	certPEM, keyPEM := splitPEM(data)
	switch {
	case keyPEM == nil && filepath.Ext(path) == ".key":
		keyPEM = data // whose parser says what is wrong with it
	case len(certPEM) > 0 || keyPEM == nil:
		if f.certs, err = ParseBundle(certPEM); err != nil {
			find("%v", err)
		}
	}
	for i, cert := range f.certs {
		f.Certificates = append(f.Certificates, Describe(cert, now))
		name := fmt.Sprintf("certificate %d (%s)", i+1, cert.Subject)
		switch {
		case now.After(cert.NotAfter) && f.Aside:
		case now.After(cert.NotAfter):
			find("%s expired at %s", name, timeText(cert.NotAfter))
		case now.Before(cert.NotBefore):
			find("%s is not valid before %s", name, timeText(cert.NotBefore))
		}
		if err := checkStrength(cert.PublicKey); err != nil {
			find("%s: %v", name, err)
		}
	}
	keyPath := path
	if keyPEM == nil && len(f.certs) > 0 {
		keyPath, keyPEM = keyBeside(path)
	}
	if keyPEM == nil {
		return f
	}
	key, err := ParsePrivateKey(keyPEM)
	if err != nil {
		find("%v (in %s)", err, filepath.Base(keyPath))
		return f
	}
	f.Key = &KeyInspection{Path: keyPath, Type: keyType(key.Public())}
	if len(f.certs) > 0 {
		matches := samePublicKey(f.certs[0].PublicKey, key.Public())
		if f.Key.MatchesCertificate = &matches; !matches {
			find("the key in %s is not the key of certificate 1", keyPath)
		}
	}
	return f
}

// splitPEM parts the private keys of a file from everything else, which ParseBundle then judges.
func splitPEM(data []byte) (other, keys []byte) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return append(other, bytes.TrimSpace(data)...), keys
		}
		consumed := data[:len(data)-len(rest)]
		if strings.HasSuffix(block.Type, blockPrivateKey) || block.Type == "EC PARAMETERS" {
			keys = append(keys, pem.EncodeToMemory(block)...)
			// pem.Decode steps over a damaged block in silence: what is before the key is judged too, if it is not mere text.
			if before := consumed[:bytes.LastIndex(consumed, pemBegin)]; bytes.Contains(before, pemBegin) {
				other = append(other, before...)
			}
		} else {
			other = append(other, consumed...)
		}
		data = rest
	}
}

// keyBeside finds the key of a certificate file by name: tls.crt has tls.key, and with cfssl's names a.pem has
// a-key.pem. It returns nothing for a key that is not there or not readable.
func keyBeside(path string) (string, []byte) {
	base := strings.TrimSuffix(path, filepath.Ext(path))
	for _, candidate := range []string{base + ".key", base + "-key.pem"} {
		if data, err := os.ReadFile(candidate); err == nil {
			return candidate, data
		}
	}
	return "", nil
}

// bundleBeside reads the CAs that lie beside a leaf, so that its chain can be shown when it is inspected alone.
func bundleBeside(path string) Bundle {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(path), BundleFile))
	if err != nil {
		return nil
	}
	b, _ := ParseBundle(data) // a damaged bundle is a finding where it is inspected itself
	return b
}

// chainOf follows the signatures from cert up through all that was seen.
func chainOf(cert *x509.Certificate, all Bundle) (subjects []string, complete bool) {
	for seen := (Bundle{}); ; {
		subjects = append(subjects, cert.Subject.String())
		seen = append(seen, cert)
		if bytes.Equal(cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(cert) == nil {
			return subjects, true
		}
		i := slices.IndexFunc(all, func(p *x509.Certificate) bool {
			return bytes.Equal(p.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(p) == nil && !seen.Contains(p)
		})
		if i < 0 {
			return subjects, false
		}
		cert = all[i]
	}
}
