// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// PendingDir, in a leaf's directory, holds the new key and its request until the certificate
// arrives. RequestFile is the request's name in PendingDir.
const (
	PendingDir  = "pending"
	RequestFile = "tls.csr"
)

// Request creates a key and a certificate request for one leaf whose CA's key is elsewhere. name
// is the leaf's directory (see Leaves). The leaf in use does not change until Accept replaces
// it. Request keeps a pending request that still matches the options and replaces any other,
// together with its key. Invalid options return *InvalidErrors.
func Request(ctx context.Context, opts InitOptions, name string) (*Report, error) {
	ca, err := findLeaf(name)
	if err != nil {
		return nil, err
	}
	// The options may also contain settings for other sets, for example from a file that Init
	// reads too. Request ignores them.
	if opts.With = []string{ca.set}; ca.set != SetKonnectivity {
		opts.With, opts.KonnectivityServerNames, opts.KonnectivityAgentServerNames = nil, nil, nil
	}
	chains, err := opts.chains([]caDef{ca})
	if err != nil {
		return nil, err
	}
	return Locked(ctx, opts.store(), func() (*Report, error) { return request(chains[0].leaves[0], opts.Dir) })
}

func request(l *leaf, out string) (*Report, error) {
	dir := l.file(PendingDir)
	item := Item{Name: l.name, Path: filepath.Join(dir, RequestFile), Action: Made, Reason: "not found"}
	csr, err := usablePending(dir, l.want)
	switch {
	case csr != nil:
		item.Action, item.Reason = Kept, "an identical request is pending"
	case err != nil:
		item.Action, item.Reason = Replaced, err.Error()
		item.note("certgen cannot accept a certificate for the previous request, because its key was deleted")
	}
	if csr == nil {
		if csr, err = makePending(dir, l.want); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(l.file(CertFile)); err == nil {
		item.note("the certificate in %s stays in use until certgen request accept replaces it", l.path())
	}
	item.Request = &RequestInfo{
		Subject: csr.Subject.String(), DNSNames: csr.DNSNames, IPAddresses: toStrings(csr.IPAddresses),
		ExtKeyUsages: extKeyUsageNames(l.want.extKeyUsages(), nil), KeyType: keyType(csr.PublicKey),
	}
	report := NewReport("RequestReport", item)
	report.Next = []string{
		"# where the CA's key is stored: certgen request sign " + RequestFile + " --ca CA-DIRECTORY --out tls.crt " +
			grants(l.want),
		"certgen request accept " + l.name + " --dir " + out + " --cert tls.crt --ca CA-CERTIFICATE",
	}
	return report, nil
}

// grants returns s as flags of certgen request sign.
func grants(s spec) string {
	var out []string
	for _, names := range []struct {
		flag   string
		values []string
	}{{"--dns", s.dnsNames}, {"--ip", s.ips}, {"--group", s.groups}} {
		if len(names.values) > 0 {
			out = append(out, names.flag+" "+strings.Join(names.values, ","))
		}
	}
	if s.usage == x509.ExtKeyUsageClientAuth {
		out = append(out, "--user "+s.commonName)
	}
	return strings.Join(out, " ")
}

// usablePending returns the pending request if it matches want. It returns nil and no error if
// there is no pending request, and an error if the request cannot be used.
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
		return nil, fmt.Errorf("the key was %s", keyType(key.Public()))
	}
	differences := want.purposeMismatches(pending.commonName, pending.groups, pending.dnsNames, pending.ips,
		extKeyUsageNames(pending.extKeyUsages(), nil))
	if len(differences) > 0 {
		return nil, errors.New(strings.Join(differences, "; "))
	}
	return csr, nil
}

// makePending writes key and request in one step, so that no request lacks its key.
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
		return nil, nil, errors.New("match key and request: the key does not match the request")
	}
	return csr, key, nil
}

// findLeaf returns the CA of the leaf with the given directory, with only that leaf.
func findLeaf(name string) (caDef, error) {
	for _, ca := range cas {
		for _, l := range ca.leaves {
			if l.dir == name {
				ca.leaves = []leafDef{l}
				return ca, nil
			}
		}
	}
	return caDef{}, &InvalidError{"leaf", name, "expected one of " + strings.Join(Leaves(), ", ")}
}

// AcceptOptions identifies the certificate to accept.
type AcceptOptions struct {
	Dir, Name string // as for Request
	CertFile  string // the certificate
	// CAFile is the certificate of the leaf's CA, which Accept stores next to the leaf. It may
	// be empty if that certificate already exists.
	CAFile         string
	AllowLongLived bool             // accept a lifetime above MaxLeafLifetime
	Now            func() time.Time // nil means time.Now
}

// Accept puts a certificate that was signed for a pending request into use, together with its
// key and the CA to trust, in one step. The certificate must match the request in every property
// and be signed by the CA. Otherwise Accept changes nothing and returns a *RefusedError for each
// difference, joined.
func Accept(ctx context.Context, opts AcceptOptions) (*Report, error) {
	ca, err := findLeaf(opts.Name)
	if err != nil {
		return nil, err
	}
	if err := Require("dir", opts.Dir, "the directory in which certgen request was run"); err != nil {
		return nil, err
	}
	c := &chain{
		now: clock(opts.Now)(), ca: authority{pairDir: pairDir{store: Dir(opts.Dir), name: ca.dir}},
		leaves: []*leaf{{pairDir: pairDir{store: Dir(opts.Dir), name: opts.Name}}},
	}
	return Locked(ctx, Dir(opts.Dir), func() (*Report, error) { return c.accept(c.leaves[0], opts) })
}

// accept puts the certificate into use in the same order as Init: first a missing CA, then the
// leaf. It removes the pending request last, so that the next Accept completes an interrupted
// one.
func (c *chain) accept(l *leaf, opts AcceptOptions) (*Report, error) {
	pending := l.file(PendingDir)
	if err := c.load(); err != nil {
		return nil, err
	}
	csr, key, err := readPending(pending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &RefusedError{Path: pending,
			Reason: "expected a pending request, found none; create one with certgen request " + l.name}
	}
	if err != nil {
		return nil, &RefusedError{Path: pending, Reason: err.Error() +
			"; create a new request with certgen request " + l.name}
	}
	if l.want, err = specOf(csr); err != nil {
		return nil, &RefusedError{Path: pending, Reason: err.Error()}
	}
	ca, err := c.findCA(opts.CAFile)
	if err != nil {
		return nil, err
	}
	cert, err := ReadCertificateFile(opts.CertFile)
	if err != nil {
		return nil, err
	}
	if err := c.checkAccepted(cert, ca, csr, opts); err != nil {
		return nil, err
	}
	if c.ca.decision.Action = Kept; !c.ca.certSeen {
		c.ca.decision.Action = Made
	}
	c.ca.cert, c.ca.issuer = ca, &CA{KeyPair: KeyPair{Certificate: ca, CertPEM: Bundle{ca}.PEM()}}
	l.decision = Item{Action: Made, Reason: "matches the request, signed by " + ca.Subject.String()}
	if l.certSeen {
		l.decision.Action = Replaced
	}
	l.cert, l.key, l.reuse = cert, key, true
	if err := c.issueLeaves(); err != nil {
		return nil, err
	}
	if err := c.save(); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(pending); err != nil {
		return nil, fmt.Errorf("remove pending request: %w", err)
	}
	report := NewReport("AcceptReport", l.item(c.now))
	report.Next = []string{"certgen verify " + l.path()}
	return report, nil
}

// findCA returns the existing CA, or the one in caFile if none exists. If both exist, they must
// be equal, because Init replaces a leaf that a different CA signed.
func (c *chain) findCA(caFile string) (*x509.Certificate, error) {
	found := &c.ca
	switch {
	case found.certErr != nil:
		return nil, &RefusedError{Path: found.file(CertFile), Reason: found.certErr.Error()}
	case found.keySeen && !found.certSeen:
		return nil, &RefusedError{Path: found.file(CertFile),
			Reason: "expected the certificate that matches the key, found none; restore it, or move the key away"}
	case caFile == "" && found.cert == nil:
		return nil, &RefusedError{Path: found.file(CertFile),
			Reason: "expected the certificate of the CA, found none; set --ca"}
	case caFile == "":
		return found.cert, nil
	}
	given, err := ReadCertificateFile(caFile)
	if err != nil {
		return nil, err
	}
	if found.cert != nil && !found.cert.Equal(given) {
		return nil, &RefusedError{Path: caFile, Reason: fmt.Sprintf(
			"expected the CA in %s (%s), found %s; to change the CA, move %s away first",
			found.file(CertFile), found.cert.Subject, given.Subject, found.path())}
	}
	return given, nil
}

// checkAccepted compares the certificate with the request and with the requirements of Init for
// a CA and its leaf.
func (c *chain) checkAccepted(cert, ca *x509.Certificate, csr *x509.CertificateRequest, opts AcceptOptions) error {
	var errs []error
	refuse := func(path, reason string) { errs = append(errs, &RefusedError{Path: path, Reason: reason}) }
	want, caFile := c.leaves[0].want, cmp.Or(opts.CAFile, c.ca.file(CertFile))
	if err := checkIssuer(ca, want, c.now); err != nil {
		refuse(caFile, err.Error())
	}
	if !SamePublicKey(cert.PublicKey, csr.PublicKey) {
		refuse(opts.CertFile,
			"expected the key of the pending request, found another; it may be for an older request")
	}
	for _, reason := range want.problems(cert, ca, c.now) {
		refuse(opts.CertFile, reason)
	}
	if cert.NotAfter.After(ca.NotAfter) {
		refuse(opts.CertFile, fmt.Sprintf("validity: expires at %s, after its CA at %s", timeText(cert.NotAfter),
			timeText(ca.NotAfter)))
	}
	if !opts.AllowLongLived && cert.NotAfter.Sub(cert.NotBefore) > MaxLeafLifetime+backdate {
		refuse(opts.CertFile,
			fmt.Sprintf("validity: expected at most 398 days, the limit of TLS clients, found %s to %s; "+
				"request less, or allow it with --allow-long-lived", timeText(cert.NotBefore), timeText(cert.NotAfter)))
	}
	return errors.Join(errs...)
}
