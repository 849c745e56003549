// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// SignOptions say what a CA grants to the sender of a request: DNSNames and IPs make a server's certificate, User and
// Groups a client's.
type SignOptions struct {
	RequestFile string // PKCS#10, PEM
	CA          string // directory with tls.crt and tls.key, or NAME.crt with NAME.key beside it
	Out         string // file for the certificate

	DNSNames, IPs      []string
	User               string
	Groups             []string
	AllowSystemMasters bool
	Lifetime           time.Duration // 0 means LeafLifetime
	AllowLongLived     bool
	Now                func() time.Time // nil means time.Now
}

// SignRequest signs the key of a request with the CA in a directory. Names and usages are those of the options, never
// of the request: if that asks for anything else it is refused, with one *RefusedError for each thing. Wrong options
// give *InvalidError. A file in the place of Out is never overwritten.
func SignRequest(opts SignOptions) (*IssueReport, error) {
	s, err := opts.spec()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(opts.RequestFile)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: fmt.Sprintf("expected a certificate request: %v", errors.Unwrap(err))}
	}
	request, err := parseRequest(data)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: err.Error()}
	}
	excess, err := asksMoreThan(request, s)
	if err != nil {
		return nil, &RefusedError{Path: opts.RequestFile, Reason: err.Error()}
	}
	var errs []error
	for _, reason := range excess {
		errs = append(errs, &RefusedError{Path: opts.RequestFile, Reason: reason + ", which is not granted; grant it by a flag, or have the request made anew"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	now := clock(opts.Now)()
	ca, err := ReadCA(opts.CA, func() time.Time { return now })
	if err != nil {
		return nil, err
	}
	if err := ca.permits(s); err != nil {
		return nil, err
	}
	if cn := request.Subject.CommonName; slices.Contains(s.dnsNames, cn) && len(cn) <= maxCommonName {
		s.commonName = cn
	}
	cert, err := ca.signRequest(s, request)
	if err != nil {
		return nil, err
	}
	if err := CreateFile(opts.Out, File{Bundle{cert}.PEM(), certMode}); err != nil {
		return nil, err
	}
	d := decision{action: Made, reason: "asked for by " + opts.RequestFile}
	if cert.NotAfter.Equal(ca.Certificate.NotAfter) {
		d.note("it ends with its CA: rotate the CA before that")
	}
	return &IssueReport{
		APIVersion: APIVersion, Kind: "SignReport", Item: Item{Name: s.commonName, Path: opts.Out, Action: d.action, Reason: d.reason, Notes: d.notes, Certificate: Describe(cert, now)},
		Next: []string{"certgen verify " + opts.Out},
	}, nil
}

func (o SignOptions) spec() (spec, error) {
	var errs []error
	for _, required := range []struct{ field, value, want string }{
		{"ca", o.CA, "the CA: a directory with tls.crt and tls.key, or a file such as ca.crt with ca.key beside it"}, {"out", o.Out, "a file for the certificate"},
	} {
		if required.value == "" {
			errs = append(errs, &InvalidError{required.field, "", "expected " + required.want})
		}
	}
	server, client := len(o.DNSNames)+len(o.IPs) > 0, o.User != "" || len(o.Groups) > 0
	var s spec
	var err error
	switch {
	case server == client:
		err = &InvalidError{"user", o.User, "expected either --dns and --ip, for a server, or --user and --group, for a client: no certificate is for both"}
	case server:
		s, err = ServingOptions{DNSNames: o.DNSNames, IPs: o.IPs, Lifetime: o.Lifetime, AllowLongLived: o.AllowLongLived}.spec()
	default:
		s, err = ClientOptions{
			User: o.User, Groups: o.Groups, AllowSystemMasters: o.AllowSystemMasters, Lifetime: o.Lifetime, AllowLongLived: o.AllowLongLived,
		}.spec()
	}
	return s, errors.Join(append(errs, err)...)
}

// ReadCA reads a CA, where ReadKeyPair finds it, as ParseCA does. What is wrong with it is a *RefusedError.
func ReadCA(path string, now func() time.Time) (*CA, error) {
	pair, err := ReadKeyPair(path)
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: "expected a CA: " + err.Error()}
	}
	ca, err := ParseCA(pair.CertPEM, pair.KeyPEM, now)
	if err != nil {
		return nil, &RefusedError{Path: path, Reason: err.Error()}
	}
	return ca, nil
}
