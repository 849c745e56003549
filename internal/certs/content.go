// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
)

// Content is the parsed content of a PEM file: what lenient readers load from it, and where
// strict readers differ.
//
// x509.CertPool.AppendCertsFromPEM and tls.X509KeyPair skip what they cannot use. client-go's
// ParseCertsPEM, which loads CA files, rejects a file with one bad certificate. OpenSSL rejects
// blocks with headers. All of them except OpenSSL use pem.Decode, which silently skips damaged
// blocks. Content holds what crypto/x509 and crypto/tls load, because they decide in the
// aggregator and in TLS. Text before a block, as OpenSSL writes it, is not a problem.
type Content struct {
	Certificates Bundle
	Key          crypto.Signer // the first key, even a weak one; nil if there is no usable key
	KeyBlocks    int
	CRLF         bool // line endings are CRLF, which certgen's own readers accept
	Problems     []Problem

	certificateBlocks int
	foreign           string // type of the first block that is not a certificate
}

// Problem is a difference between readers. Its text completes "found …" and contains no key
// material.
type Problem struct {
	Text    string
	Warning bool // relevant readers load the rest of the file as intended
}

func (c *Content) problem(warning bool, format string, args ...any) {
	c.Problems = append(c.Problems, Problem{fmt.Sprintf(format, args...), warning})
}

// pemBegin starts the first line of every PEM block, whole or damaged.
var pemBegin = []byte("-----BEGIN ")

// ReadPEM parses all PEM blocks in data. It reports malformed data in Problems.
func ReadPEM(data []byte) *Content {
	c := &Content{CRLF: bytes.Contains(data, []byte("\r\n"))}
	blocks, rest := 0, data
	for ; ; blocks++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c.add(block)
	}
	switch begun := bytes.Count(data, pemBegin); {
	case begun > blocks:
		c.problem(false, "damaged PEM blocks (%d of %d), which readers skip silently", begun-blocks, begun)
	case blocks == 0:
		c.problem(false, "no PEM block in %d bytes", len(data))
	case len(bytes.TrimSpace(rest)) > 0:
		c.problem(true, "text after the last PEM block; check that this is the right file, and complete")
	}
	if c.KeyBlocks > 1 {
		c.problem(true, "%d private keys; servers load the first", c.KeyBlocks)
	}
	return c
}

func (c *Content) add(block *pem.Block) {
	if block.Type == blockCertificate {
		c.addCertificate(block)
		return
	}
	if c.foreign == "" {
		c.foreign = block.Type
	}
	switch {
	case block.Type == "EC PARAMETERS": // OpenSSL writes it before a key, and key readers skip it
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		c.KeyBlocks++
		c.problem(false, "a block %q: the key is encrypted, and servers have no password for it; decrypt it: "+
			"openssl pkcs8 -topk8 -nocrypt", block.Type)
	case strings.HasSuffix(block.Type, blockPrivateKey):
		if c.KeyBlocks++; c.KeyBlocks == 1 {
			c.addKey(block)
		}
	default:
		c.problem(true, "a block %q, which readers skip or refuse", block.Type)
	}
}

func (c *Content) addCertificate(block *pem.Block) {
	c.certificateBlocks++
	if len(block.Headers) > 0 {
		c.problem(false, "certificate %d in a block with headers: crypto/tls loads it, crypto/x509 and client-go "+
			"skip it, OpenSSL refuses the file; remove the headers", c.certificateBlocks)
		return
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		c.problem(false, "certificate %d malformed (%v): client-go refuses the whole file, crypto/x509 skips the block",
			c.certificateBlocks, err)
		return
	}
	c.Certificates = append(c.Certificates, cert)
}

func (c *Content) addKey(block *pem.Block) {
	var key any
	var err error
	switch block.Type {
	case blockPrivateKey:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		c.problem(false, "a block %q; client-go reads PRIVATE KEY, EC PRIVATE KEY and RSA PRIVATE KEY only", block.Type)
		return
	}
	if len(block.Headers) > 0 {
		c.problem(true, "a block %q with headers, which OpenSSL refuses; convert it: openssl pkcs8 -topk8 -nocrypt",
			block.Type)
	}
	var ok bool
	if c.Key, ok = key.(crypto.Signer); !ok || err != nil {
		// The parser's error text may contain bytes of the key.
		c.Key = nil
		c.problem(false, "a block %q without a usable key; the block may be truncated", block.Type)
	}
}
