// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// PendingDir, in a leaf's directory, holds the new key and its request until the certificate comes. RequestFile is in it.
const (
	PendingDir  = "pending"
	RequestFile = "tls.csr"
)

// RequestReport says what Request did.
type RequestReport struct {
	APIVersion  string   `json:"apiVersion"`
	Kind        string   `json:"kind"` // RequestReport
	Name        string   `json:"name"` // of the leaf's directory
	Path        string   `json:"path"` // of the request, to be sent to the CA
	Action      Action   `json:"action"`
	Reason      string   `json:"reason"`
	Subject     string   `json:"subject"`
	DNSNames    []string `json:"dnsNames,omitempty"`
	IPAddresses []string `json:"ipAddresses,omitempty"`
	ExtKeyUsage string   `json:"extKeyUsage"`
	KeyType     string   `json:"keyType"`
	Notes       []string `json:"notes,omitempty"`
	Next        []string `json:"next"` // commands to run now
}

// Request makes a new key and a certificate request for one leaf, named by its directory (see Leaves), whose CA's key is
// somewhere else. The leaf in use stays as it is; Accept puts the new one in its place. A pending request that still
// asks for the right thing is kept; any other is replaced, and its key with it. Wrong options give *InvalidError.
func Request(ctx context.Context, opts InitOptions, name string) (*RequestReport, error) {
	set, err := findLeaf(name)
	if err != nil {
		return nil, err
	}
	// What is there for other sets, perhaps in a file that Init reads too, has no meaning here.
	if opts.With = []string{set.name}; set.name != SetKonnectivity {
		opts.With, opts.KonnectivityServerNames, opts.KonnectivityAgentServerNames = nil, nil, nil
	}
	chains, err := opts.chains([]setDef{set})
	if err != nil {
		return nil, err
	}
	return locked(ctx, opts.store(), func() (*RequestReport, error) { return request(chains[0].leaves[0], opts.Dir) })
}

func request(l *leaf, out string) (*RequestReport, error) {
	dir := l.file(PendingDir)
	if err := repairLinks(dir); err != nil {
		return nil, err
	}
	decision := decision{action: Made, reason: "there was none"}
	csr, err := usablePending(dir, l.want)
	switch {
	case csr != nil:
		decision.action, decision.reason = Kept, "a request for the same was pending"
	case err != nil:
		decision.action, decision.reason = Replaced, err.Error()
		decision.note("a certificate for the request before this one will not be accepted: its key is gone")
	}
	if csr == nil {
		if csr, err = makePending(dir, l.want); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(l.file(CertFile)); err == nil {
		decision.note("the pair in %s stays in use until the new certificate is accepted", l.path())
	}
	return &RequestReport{
		APIVersion: APIVersion, Kind: "RequestReport", Name: l.name, Path: filepath.Join(dir, RequestFile),
		Action: decision.action, Reason: decision.reason, Notes: decision.notes,
		Subject: csr.Subject.String(), DNSNames: csr.DNSNames, IPAddresses: toStrings(csr.IPAddresses),
		ExtKeyUsage: extKeyUsageNames(l.want.extKeyUsages(), nil)[0], KeyType: keyType(csr.PublicKey),
		Next: []string{
			"# where the CA's key is: certgen request sign " + RequestFile + " --ca CA-DIRECTORY --out tls.crt " + grants(l.want),
			"certgen request accept " + l.name + " --dir " + out + " --cert tls.crt --ca CA-CERTIFICATE",
		},
	}, nil
}

// grants spells s as the flags of certgen request sign.
func grants(s spec) string {
	var out []string
	for _, names := range []struct {
		flag   string
		values []string
	}{{"--dns", s.dnsNames}, {"--ip", toStrings(s.ips)}, {"--group", s.groups}} {
		if len(names.values) > 0 {
			out = append(out, names.flag+" "+strings.Join(names.values, ","))
		}
	}
	if s.usage == x509.ExtKeyUsageClientAuth {
		out = append(out, "--user "+s.commonName)
	}
	return strings.Join(out, " ")
}

// usablePending returns the pending request if it asks for what is wanted, why it cannot be used as an error, and
// neither if there is none.
func usablePending(dir string, want spec) (*x509.CertificateRequest, error) {
	csr, key, err := readPending(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pending, err := specOf(csr)
	if err != nil {
		return nil, err
	}
	if !want.keyType.matches(key.Public()) {
		return nil, fmt.Errorf("its key was %s", keyType(key.Public()))
	}
	differences := want.nameMismatches(pending.commonName, pending.groups, pending.dnsNames, toStrings(pending.ips))
	differences = append(differences, mismatch("usages", extKeyUsageNames(want.extKeyUsages(), nil), extKeyUsageNames(pending.extKeyUsages(), nil))...)
	if len(differences) > 0 {
		return nil, errors.New(strings.Join(differences, "; "))
	}
	return csr, nil
}

// makePending writes key and request in one step, so that no request is without its key.
func makePending(dir string, want spec) (*x509.CertificateRequest, error) {
	key, err := newKey(want.keyType)
	if err != nil {
		return nil, err
	}
	csr, err := newRequest(want, key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	return csr, WriteFiles(dir, Files{KeyFile: {keyPEM, keyMode}, RequestFile: {encodeRequest(csr), certMode}})
}

func readPending(dir string) (*x509.CertificateRequest, crypto.Signer, error) {
	files, err := Dir(dir).Read("", RequestFile, KeyFile)
	if err != nil {
		return nil, nil, err
	}
	if len(files) < 2 {
		return nil, nil, fs.ErrNotExist
	}
	csr, err := parseRequest(files[RequestFile].Data)
	if err != nil {
		return nil, nil, err
	}
	key, err := ParsePrivateKey(files[KeyFile].Data)
	if err != nil {
		return nil, nil, err
	}
	if !SamePublicKey(csr.PublicKey, key.Public()) {
		return nil, nil, errors.New("match key and request: the key belongs to another request")
	}
	return csr, key, nil
}

// findLeaf returns the set of the leaf with the given directory, cut down to that leaf and its CA.
func findLeaf(name string) (setDef, error) {
	for _, s := range sets {
		for _, ca := range s.cas {
			for _, l := range ca.leaves {
				if l.dir == name {
					ca.leaves = []leafDef{l}
					s.cas = []caDef{ca}
					return s, nil
				}
			}
		}
	}
	return setDef{}, &InvalidError{"leaf", name, "expected one of " + strings.Join(Leaves(), ", ")}
}
