// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// APIVersion names the form of the JSON documents. While it is alpha a release may change it, as with APIs of
// Kubernetes.
const APIVersion = "certgen.example.com/v1alpha1"

// lockWait is how long Locked waits for another one in the same directory. An Init takes some 10 ms.
const lockWait = 5 * time.Second

// InitOptions say which certificates a directory must hold.
type InitOptions struct {
	Dir      string
	Store    Store    // nil means the directory Dir
	With     []string // sets besides the serving set, see SetNames; nil means SetFrontProxy, an empty list none
	Service  Service
	DNSNames []string // of the serving certificate, besides those of the Service
	IPs      []string // likewise
	// KonnectivityServerNames are the DNS names and IP addresses by which kube-apiserver dials konnectivity's server;
	// nil means this machine. KonnectivityAgentServerNames are those by which agents dial it; they have no default.
	KonnectivityServerNames, KonnectivityAgentServerNames []string

	KeyType        KeyType       // of keys made now; a strong key of another type is kept
	Lifetime       time.Duration // of leaves made now; 0 means 90 days, for konnectivity 365 days
	AllowLongLived bool          // allow a Lifetime above MaxLeafLifetime
	// ClientCAFiles hold the CAs of the cluster's users. None of them may be one of ours: whoever has a user's
	// certificate could claim to be the front proxy, and with that to be anybody.
	ClientCAFiles []string
	// Signer has the key of the serving CA, whose certificate must be there; nil means that the key is there too. What
	// the CA's key is needed for is then asked from it, and the CA is never replaced.
	Signer *RemoteSigner
	// AllowNewCA lets a CA that cannot be used, as one that has expired, be moved aside and replaced. Without it that
	// is refused, because whatever trusts the old CA must then learn to trust the new one.
	AllowNewCA bool
	// DryRun reports what would be done and writes nothing, not even a lock: another Init may change files meanwhile.
	DryRun bool
	Now    func() time.Time // nil means time.Now
}

// Report says what a command did, in the order in which it did it.
type Report struct {
	APIVersion string `json:"apiVersion"`
	// InitReport, RequestReport, SignReport, AcceptReport, KubeconfigReport, ApplyReport or RenewReport
	Kind   string   `json:"kind"`
	DryRun bool     `json:"dryRun"` // nothing was written; what is random in a certificate is left out
	Items  []Item   `json:"items"`
	Next   []string `json:"next,omitempty"` // commands to run now
}

// NewReport returns a report of that kind.
func NewReport(kind string, items ...Item) *Report {
	return &Report{APIVersion: APIVersion, Kind: kind, Items: append([]Item{}, items...)} // never null in JSON
}

// Item is what was done about one pair, file or object.
type Item struct {
	Name   string `json:"name,omitempty"` // of the pair's directory, or of whom the certificate is for
	Path   string `json:"path"`           // of an object its kind and name
	Action Action `json:"action"`
	Reason string `json:"reason"`
	// TrustChanged is true when a CA took the place of another: its leaves are refused wherever only the old one
	// is trusted.
	TrustChanged bool             `json:"trustChanged,omitempty"`
	Notes        []string         `json:"notes,omitempty"`       // what a person should know or do
	Certificate  *CertificateInfo `json:"certificate,omitempty"` // that was made or kept
	Request      *RequestInfo     `json:"request,omitempty"`     // that was made or kept
}

// Action is what was done.
type Action string

// The actions.
const (
	Made     Action = "created"
	Kept     Action = "unchanged"
	Replaced Action = "replaced"
)

// Init makes the certificates of an extension API server in a directory and keeps those that are there and right.
// The serving set is always made, the others where With names them. The keys of CAs have directories of their own, so
// that a pod can be given a leaf and nothing more.
//
// A leaf is replaced when anything about it is not right or less than a third of its life is left. A CA is replaced
// only with AllowNewCA. Otherwise *RefusedError tells what is in the way; wrong options give
// *InvalidError. Either are joined, and no certificate or key has changed then: everything is decided and signed
// before the first file is written. Init waits up to 5 s for another one in Dir. A run that was cut short is completed
// by the next.
func Init(ctx context.Context, opts InitOptions) (*Report, error) {
	chains, err := opts.chains(opts.cas())
	if err != nil {
		return nil, err
	}
	if opts.DryRun {
		return initLocked(chains, opts)
	}
	return Locked(ctx, opts.store(), func() (*Report, error) { return initLocked(chains, opts) })
}

func (o InitOptions) store() Store { return cmp.Or(o.Store, Store(Dir(o.Dir))) }

// Locked runs do while it holds the store's lock, for which it waits up to 5 s.
func Locked[T any](ctx context.Context, store Store, do func() (T, error)) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := store.Lock(ctx)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return do()
}

func initLocked(chains []*chain, opts InitOptions) (*Report, error) {
	userCAs, err := ReadBundle(opts.ClientCAFiles...)
	refusals := []error{err}
	for _, c := range chains {
		c.userCAs = userCAs
		refusals = append(refusals, c.plan(opts.AllowNewCA))
	}
	if err := errors.Join(refusals...); err != nil {
		return nil, err
	}
	for _, c := range chains {
		if err := c.issue(); err != nil {
			return nil, err
		}
	}
	report := NewReport("InitReport")
	report.DryRun = opts.DryRun
	for _, c := range chains {
		if !opts.DryRun {
			if err := c.save(); err != nil {
				return nil, err
			}
		}
		report.Items = append(report.Items, c.items(opts.DryRun)...)
	}
	report.Next = []string{"certgen verify --dir " + opts.Dir}
	for _, ca := range opts.cas() {
		for _, command := range ca.next {
			report.Next = append(report.Next, filepath.FromSlash(
				strings.ReplaceAll(command, "DIR", filepath.Clean(opts.Dir))))
		}
	}
	return report, nil
}

// Validate returns an InvalidError for each wrong value, joined.
func (o InitOptions) Validate() error {
	_, err := o.chains(o.cas())
	return err
}

// cas are those of the sets that With asks for, in the order of the table.
func (o InitOptions) cas() []caDef {
	with := o.With
	if with == nil {
		with = []string{SetFrontProxy}
	}
	return slices.DeleteFunc(slices.Clone(cas), func(ca caDef) bool {
		return ca.set != setServing &&
			!slices.Contains(with, ca.set)
	})
}

// chains validates the options of the CAs and describes them with their leaves.
func (o InitOptions) chains(cas []caDef) ([]*chain, error) {
	errs := []error{o.validateCommon()}
	var out []*chain
	now := clock(o.Now)()
	for _, def := range cas {
		c := &chain{now: now, ca: authority{pairDir: pairDir{store: o.store(), name: def.dir}}}
		for _, l := range def.leaves {
			want, err := l.want(&o)
			errs = append(errs, err)
			want.keyType, want.lifetime = o.KeyType, cmp.Or(o.Lifetime, def.lifetime)
			c.leaves = append(c.leaves, &leaf{pairDir: pairDir{store: o.store(), name: l.dir}, want: want,
				afterwards: l.afterwards})
		}
		c.ca.options = CAOptions{
			Name: def.dir, Usage: x509.ExtKeyUsageClientAuth, MutualTLS: def.mutual, KeyType: o.KeyType,
			Now: func() time.Time { return now },
		}
		if ca, serving := &c.ca.options, c.leaves[0].want; def.set == setServing {
			ca.Name, ca.Usage = o.Service.Name+"-serving-ca", x509.ExtKeyUsageServerAuth
			ca.PermittedDNS, ca.PermittedIPs = serving.dnsNames, serving.ips
			c.remote = o.Signer
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// validateCommon checks what belongs to no set.
func (o InitOptions) validateCommon() error {
	var errs []error
	if o.Dir == "" && o.Store == nil {
		errs = append(errs, &InvalidError{"dir", o.Dir,
			"expected the directory for the certificates, such as ./pki; certgen creates it"})
	}
	for _, name := range o.With {
		if !slices.Contains(SetNames(), name) {
			errs = append(errs, &InvalidError{"with", name, "expected " + strings.Join(SetNames(), " or ") +
				"; the serving certificates are always issued"})
		}
	}
	if names := slices.Concat(o.KonnectivityServerNames, o.KonnectivityAgentServerNames); len(names) > 0 &&
		!slices.Contains(o.With, SetKonnectivity) {
		errs = append(errs, &InvalidError{"with", strings.Join(o.With, ","),
			fmt.Sprintf("expected %s, for %s; add it, or remove the names",
				SetKonnectivity, strings.Join(names, ","))})
	}
	if o.Signer != nil {
		errs = append(errs, o.Signer.Validate())
	}
	return errors.Join(append(errs, ValidateLeaf(o.Lifetime, o.KeyType, o.AllowLongLived))...)
}

// servingNames are those of the Service and those that were asked for besides.
func servingNames(o *InitOptions) (spec, error) {
	dns, dnsErr := parseAll("dns", o.DNSNames, normalizeDNSName)
	_, ipErr := parseAll("ip", o.IPs, parseIP)
	if err := errors.Join(o.Service.Validate(), dnsErr, ipErr); err != nil {
		return spec{}, err
	}
	return ServingOptions{DNSNames: append(o.Service.DNSNames(), dns...), IPs: o.IPs}.spec()
}
