// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"example.com/extension-apiserver/internal/certs"
)

// pemFile is a file with certificates, a key, or both: what lenient readers take from it, and what strict ones would
// say.
//
// Readers differ. x509.CertPool.AppendCertsFromPEM and tls.X509KeyPair skip what they cannot use; client-go's
// ParseCertsPEM, which loads CA files, refuses a file with one bad certificate; pem.Decode, below all of them, steps
// over damaged blocks in silence. What is taken here is what the lenient ones take, since they decide at the aggregator
// and in TLS; every difference is a problem.
type pemFile struct {
	path  string
	mode  fs.FileMode // what a link points to
	plain bool        // not a link
	err   error       // it cannot be read

	certificates certs.Bundle
	key          crypto.Signer
	keyBlocks    int
	problems     []Finding // of F04
}

// readFile returns nil for a file that does not exist.
func readFile(path string) *pemFile {
	link, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f := &pemFile{path: path, err: err}
	if err != nil {
		return f
	}
	f.plain = link.Mode()&fs.ModeSymlink == 0
	info, err := os.Stat(path)
	if err != nil {
		f.err = err
		return f
	}
	f.mode = info.Mode()
	data, err := os.ReadFile(path)
	if err != nil {
		f.err = err
		return f
	}
	f.parse(data)
	return f
}

func (f *pemFile) problem(severity Severity, format string, args ...any) {
	f.problems = append(f.problems, Finding{Severity: severity, Object: f.path, Evidence: fmt.Sprintf(format, args...)})
}

func (f *pemFile) parse(data []byte) {
	blocks := 0
	rest := data
	for {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		rest = after
		blocks++
		f.take(block)
	}
	switch begun := bytes.Count(data, []byte("-----BEGIN ")); {
	case begun > blocks:
		f.problem(Error, "%d of %d PEM blocks are damaged; readers skip them without a word", begun-blocks, begun)
	case blocks == 0:
		f.problem(Error, "no PEM block in %d bytes", len(data))
	case len(bytes.TrimSpace(rest)) > 0:
		f.problem(Warning, "%d bytes after the last PEM block", len(bytes.TrimSpace(rest)))
	}
	if bytes.Contains(data, []byte("\r\n")) {
		f.problem(Warning, "line ends are CRLF")
	}
	if f.keyBlocks > 1 {
		f.problem(Warning, "%d private keys; servers load the first", f.keyBlocks)
	}
}

func (f *pemFile) take(block *pem.Block) {
	switch {
	case block.Type == "CERTIFICATE" && len(block.Headers) > 0:
		f.problem(Error, "a block CERTIFICATE with headers: crypto/tls loads it, crypto/x509 and client-go skip it, OpenSSL refuses the file")
	case block.Type == "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			f.problem(Error, "a block CERTIFICATE is no certificate (%v): client-go refuses the whole file, crypto/x509 skips the block", err)
			return
		}
		f.certificates = append(f.certificates, cert)
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		f.keyBlocks++
		f.problem(Error, "the key is encrypted; servers have no password for it")
	case block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY"):
		f.takeKey(block)
	case block.Type == "EC PARAMETERS": // OpenSSL writes it before a key, and readers skip it
	default:
		f.problem(Warning, "a block %q, which readers skip or refuse", block.Type)
	}
}

// takeKey takes the first key. Weak ones are taken too: their strength is another finding.
func (f *pemFile) takeKey(block *pem.Block) {
	if f.keyBlocks++; f.keyBlocks > 1 {
		return
	}
	if len(block.Headers) > 0 {
		f.problem(Warning, "a block %s with headers, which OpenSSL refuses", block.Type)
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		f.problem(Error, "a block %q; client-go reads PRIVATE KEY, EC PRIVATE KEY and RSA PRIVATE KEY only", block.Type)
		return
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		// The parser's own words may hold bytes of the key.
		f.problem(Error, "a block %s holds no usable key", block.Type)
		return
	}
	f.key = signer
}
