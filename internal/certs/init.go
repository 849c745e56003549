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

// APIVersion is the version of the JSON documents. While it is alpha, a release may change them
// incompatibly, as with Kubernetes APIs.
const APIVersion = "certgen.example.com/v1alpha1"

// lockWait is how long Locked waits for a concurrent call in the same directory. Init takes
// about 10 ms.
const lockWait = 5 * time.Second

// InitOptions describes the certificates that a directory must contain.
type InitOptions struct {
	Dir      string
	Store    Store    // nil means the directory Dir
	With     []string // sets besides the serving set, see SetNames; nil means SetFrontProxy, an empty list none
	Service  Service
	DNSNames []string // of the serving certificate, in addition to those of the Service
	IPs      []string // IP addresses of the serving certificate
	// KonnectivityServerNames are the DNS names and IP addresses by which kube-apiserver dials
	// konnectivity's server; nil means this machine. KonnectivityAgentServerNames are those by
	// which agents dial it; they have no default.
	KonnectivityServerNames, KonnectivityAgentServerNames []string

	KeyType        KeyType       // of new keys; an existing strong key of another type is kept
	Lifetime       time.Duration // of new leaves; 0 means 90 days, for konnectivity 365 days
	AllowLongLived bool          // allow a Lifetime above MaxLeafLifetime
	// ClientCAFiles contain the CAs of the cluster's users. None of them may be one of our CAs.
	// Otherwise, any user who has a certificate could claim to be the front proxy, and through
	// it any other user.
	ClientCAFiles []string
	// Signer has the key of the serving CA, whose certificate must exist in Dir; nil means that
	// the key is in Dir too. With a Signer, all signatures that need the CA's key come from it,
	// and the CA is never replaced.
	Signer *RemoteSigner
	// AllowNewCA allows an unusable CA, such as an expired one, to be moved aside and replaced.
	// Without it, Init returns an error, because every client that trusts the old CA must first
	// learn to trust the new one.
	AllowNewCA bool
	// DryRun reports the planned changes and writes nothing, not even a lock. Another Init may
	// therefore change files meanwhile.
	DryRun bool
	Now    func() time.Time // nil means time.Now
}

// Report describes what a command did, in order.
type Report struct {
	APIVersion string `json:"apiVersion"`
	// Kind is InitReport, RequestReport, SignReport, AcceptReport, KubeconfigReport, ApplyReport
	// or RenewReport.
	Kind   string   `json:"kind"`
	DryRun bool     `json:"dryRun"` // nothing was written; random values in certificates are omitted
	Items  []Item   `json:"items"`
	Next   []string `json:"next,omitempty"` // commands to run next
}

// NewReport returns a report of the given kind.
func NewReport(kind string, items ...Item) *Report {
	return &Report{APIVersion: APIVersion, Kind: kind, Items: append([]Item{}, items...)} // never null in JSON
}

// Item describes the action on one key pair, file or object.
type Item struct {
	Name   string `json:"name,omitempty"` // the key pair's directory, or the certificate's subject
	Path   string `json:"path"`           // for an object, its kind and name
	Action Action `json:"action"`
	Reason string `json:"reason"`
	// TrustChanged is true if a CA replaced another one. Clients that trust only the old CA
	// reject the new CA's leaves.
	TrustChanged bool             `json:"trustChanged,omitempty"`
	Notes        []string         `json:"notes,omitempty"`       // information and recommended actions
	Certificate  *CertificateInfo `json:"certificate,omitempty"` // that was created or kept
	Request      *RequestInfo     `json:"request,omitempty"`     // that was created or kept
}

// Action is the action that a command took.
type Action string

// The actions.
const (
	Made     Action = "created"
	Kept     Action = "unchanged"
	Replaced Action = "replaced"
)

// Init creates the certificates of an extension API server in a directory and keeps existing
// ones that are still correct. It always creates the serving certificates, and the other sets if
// With lists them. The keys of CAs have their own directories, so that a pod can get a leaf and
// nothing else.
//
// Init replaces a leaf if any of its properties is wrong, or if less than a third of its
// lifetime is left. It replaces a CA only with AllowNewCA. If files on disk prevent the
// operation, it returns *RefusedErrors. Invalid options return *InvalidErrors. Both are joined,
// and no certificate or key has changed then: Init decides and signs everything before it writes
// the first file. Init waits up to 5 s for a concurrent Init in Dir. The next run completes an
// interrupted one.
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

// Locked runs do while it holds the store's lock. It waits up to 5 s for the lock.
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

// Validate returns an *InvalidError for each invalid value, joined.
func (o InitOptions) Validate() error {
	_, err := o.chains(o.cas())
	return err
}

// cas returns the CAs of the sets that With selects, in the order of the table.
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

// chains validates the options and returns the wanted CAs with their leaves.
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

// validateCommon validates the options that do not belong to a particular set.
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

// servingNames returns the spec of the serving certificate, with the names of the Service and
// the additional names in the options.
func servingNames(o *InitOptions) (spec, error) {
	dns, dnsErr := parseAll("dns", o.DNSNames, normalizeDNSName)
	_, ipErr := parseAll("ip", o.IPs, parseIP)
	if err := errors.Join(o.Service.Validate(), dnsErr, ipErr); err != nil {
		return spec{}, err
	}
	return ServingOptions{DNSNames: append(o.Service.DNSNames(), dns...), IPs: o.IPs}.spec()
}
