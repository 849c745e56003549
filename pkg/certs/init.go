// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"time"
)

// The directories that Init keeps. Each holds tls.crt and tls.key, those of leaves ca.crt too.
const (
	ServingCADir        = "serving-ca"
	ServingDir          = "serving"
	FrontProxyCADir     = "front-proxy-ca"
	FrontProxyClientDir = "front-proxy-client"
)

// apiVersion names the form of the JSON documents; a change that breaks readers gets a new one.
const apiVersion = "certgen.example.com/v1alpha1"

// lockWait is how long Init waits for another one in the same directory. An Init takes some 10 ms.
const lockWait = 5 * time.Second

// InitOptions say which certificates a directory must hold.
type InitOptions struct {
	Dir      string
	Service  Service
	DNSNames []string // of the serving certificate, besides those of the Service
	IPs      []string // likewise
	// AllowNewCA lets a CA that cannot be used, and has not expired, be moved aside and replaced. Without it that is
	// refused, because whatever trusts the old CA must then learn to trust the new one.
	AllowNewCA bool
	Now        func() time.Time // nil means time.Now
}

// InitReport says what Init did, in the order in which it did it.
type InitReport struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // InitReport
	Directory  string   `json:"directory"`
	Items      []Item   `json:"items"`
	Next       []string `json:"next"` // commands to run now
}

// Item is what Init did about one pair.
type Item struct {
	Name   string `json:"name"` // of the pair's directory
	Path   string `json:"path"`
	Action Action `json:"action"`
	Reason string `json:"reason"`
	// TrustChanged is true when a CA took the place of another: its leaves are refused wherever only the old one
	// is trusted.
	TrustChanged bool            `json:"trustChanged"`
	Notes        []string        `json:"notes,omitempty"` // what a person should know or do
	Certificate  CertificateInfo `json:"certificate"`
}

// Action is what Init did.
type Action string

// The actions.
const (
	Made     Action = "made"
	Kept     Action = "kept"
	Replaced Action = "replaced"
)

// Init makes the certificates of an extension API server in a directory and keeps those that are there and right:
//
//	serving-ca/{tls.crt,tls.key}                 signs serving certificates for the Service's names only
//	serving/{tls.crt,tls.key,ca.crt}             what the server presents; ca.crt is its APIServices' caBundle
//	front-proxy-ca/{tls.crt,tls.key}             signs client certificates
//	front-proxy-client/{tls.crt,tls.key,ca.crt}  what kube-apiserver presents; ca.crt is its requestheader CA
//
// The keys of CAs have directories of their own, so that a pod can be given a leaf and nothing more.
//
// A leaf is replaced when anything about it is not right or less than a third of its life is left. A CA is replaced
// only when it expired, or with AllowNewCA. Otherwise *RefusedError tells what is in the way; wrong options give
// *InvalidError. Either are joined, and no certificate or key has changed then. Init waits up to 5 s for another one
// in Dir. A run that was cut short is completed by the next.
func Init(ctx context.Context, opts InitOptions) (*InitReport, error) {
	chains, err := opts.chains()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := Lock(ctx, opts.Dir)
	if err != nil {
		return nil, err
	}
	report, err := initLocked(chains, opts)
	return report, errors.Join(err, unlock())
}

func initLocked(chains []*chain, opts InitOptions) (*InitReport, error) {
	var refusals []error
	for _, c := range chains {
		refusals = append(refusals, c.plan(opts.AllowNewCA))
	}
	if err := errors.Join(refusals...); err != nil {
		return nil, err
	}
	report := &InitReport{APIVersion: apiVersion, Kind: "InitReport", Directory: opts.Dir}
	for _, c := range chains {
		items, err := c.apply()
		if err != nil {
			return nil, err
		}
		report.Items = append(report.Items, items...)
	}
	serving, client := filepath.Join(opts.Dir, ServingDir), filepath.Join(opts.Dir, FrontProxyClientDir)
	report.Next = []string{
		"certgen inspect " + opts.Dir,
		"extension-apiserver --tls-cert-file=" + filepath.Join(serving, CertFile) + " --tls-private-key-file=" + filepath.Join(serving, KeyFile),
		"kube-apiserver --proxy-client-cert-file=" + filepath.Join(client, CertFile) + " --proxy-client-key-file=" + filepath.Join(client, KeyFile) +
			" --requestheader-client-ca-file=" + filepath.Join(client, BundleFile) + " --requestheader-allowed-names=" + FrontProxyUser,
	}
	return report, nil
}

// Validate returns all that is wrong with the options, as *InvalidError joined by errors.Join.
func (o InitOptions) Validate() error {
	_, err := o.chains()
	return err
}

// chains validates all options and describes the two CAs with their leaves.
func (o InitOptions) chains() ([]*chain, error) {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, &InvalidError{"out", o.Dir, "expected the directory for the certificates, such as ./pki; it is made if missing"})
	}
	extraDNS, dnsErr := parseDNSNames("dns", o.DNSNames)
	_, ipErr := parseIPs("ip", o.IPs)
	errs = append(errs, o.Service.Validate(), dnsErr, ipErr)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	names := append(o.Service.DNSNames(), extraDNS...)
	serving, err := ServingOptions{DNSNames: names, IPs: o.IPs}.spec()
	if err != nil {
		return nil, err
	}
	client, err := ClientOptions{User: FrontProxyUser}.spec()
	if err != nil {
		return nil, err
	}
	now := clock(o.Now)()
	frozen := func() time.Time { return now }
	newChain := func(caDir, leafDir string, leaf spec, ca CAOptions) *chain {
		ca.Now = frozen
		return &chain{
			now: now, newCA: ca, want: leaf,
			ca:   pairDir{name: caDir, path: filepath.Join(o.Dir, caDir)},
			leaf: pairDir{name: leafDir, path: filepath.Join(o.Dir, leafDir)},
		}
	}
	return []*chain{
		newChain(ServingCADir, ServingDir, serving, CAOptions{
			Name: o.Service.Name + "-serving-ca", Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: names, PermittedIPs: o.IPs,
		}),
		newChain(FrontProxyCADir, FrontProxyClientDir, client, CAOptions{
			Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth,
		}),
	}, nil
}
