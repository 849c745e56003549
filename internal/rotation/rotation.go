// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// The rotations.
const (
	Serving      = "serving"        // a new serving certificate of the same CA
	ServingCA    = "serving-ca"     // a new serving CA and a certificate of it
	ProxyClient  = "proxy-client"   // a new client certificate of kube-apiserver's front proxy, of the same CA
	FrontProxyCA = "front-proxy-ca" // a new CA of the front proxy and a client certificate of it
)

// Rotations returns all rotations.
func Rotations() []string { return []string{Serving, ServingCA, ProxyClient, FrontProxyCA} }

// ofFrontProxy reports whether a rotation replaces front-proxy certificates rather than serving
// certificates.
func ofFrontProxy(rotation string) bool { return rotation == ProxyClient || rotation == FrontProxyCA }

// The defaults of Options.
const (
	// DefaultHold exceeds the delays that cannot be observed: that of kube-aggregator's
	// informer, and the minute after which a server rereads its files if it missed a change,
	// plus the 90 s for which a connection may be idle.
	DefaultHold = 3 * time.Minute
	// DefaultTimeout exceeds the two minutes that kubelet needs to update a Secret in a pod.
	DefaultTimeout = 5 * time.Minute
	// DefaultSettle exceeds the minute after which kube-apiserver adds the CAs in its files to
	// the ConfigMap.
	DefaultSettle = 90 * time.Second

	defaultPoll = 2 * time.Second
	// preflightTimeout exceeds the time that a kube-apiserver needs to restart, but is short for
	// a user who has to fix a problem.
	preflightTimeout = 30 * time.Second
)

// Observer contains the operations with which a rotation observes and changes a cluster.
// apply.Client documents each method.
type Observer interface {
	APIServices(ctx context.Context, s certs.Service) ([]apiregistrationv1.APIService, error)
	AggregatedServices(ctx context.Context) ([]certs.Service, error) // each receives the front proxy's certificate
	Endpoints(ctx context.Context, s certs.Service) ([]cluster.Endpoint, error)
	Served(ctx context.Context, s certs.Service, trust certs.Bundle) ([]cluster.Served, error)
	ProbeFrontProxy(ctx context.Context, e cluster.Endpoint, s certs.Service, trust certs.Bundle,
		proxy *certs.KeyPair) (cluster.ProbeResult, error)
	// KubeAPIServers returns at least one URL; otherwise, observations through all of them would
	// be empty.
	KubeAPIServers(ctx context.Context) ([]string, error)
	Identities(ctx context.Context) (int, error)
	CheckObserved(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error
	CheckResponds(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error
	FrontProxyCertificate(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) (string, error)
	ClockSkew(ctx context.Context) (time.Duration, error)
	TrustConfigMap(ctx context.Context) (*corev1.ConfigMap, error)
	Secrets(namespace string) typedcorev1.SecretInterface
	Exclusive(ctx context.Context, s certs.Service, do func(context.Context) error) error
	MayChangeTrust(ctx context.Context, s certs.Service) error
	ChangeCABundle(ctx context.Context, s certs.Service, add, remove certs.Bundle) error
	ChangeFrontProxyCAs(ctx context.Context, add, remove certs.Bundle, dryRun ...string) error
}

// Options define what to rotate and how long to wait.
type Options struct {
	Rotation string // see Rotations
	Service  certs.Service
	Dir      string // created by certgen init; alternatively, set Secret and CASecret
	// Secret and CASecret name Secrets in the namespace of the Service. The Secret for the
	// serving key pair is created if it is missing. The Secret for the serving CA with its key
	// must exist. Anyone who can read it can issue certificates for the Service. If it has no
	// data, Maintain creates a new CA.
	Secret, CASecret string
	// Observer may be nil only for Serving and ProxyClient in Dir: files are then written
	// without any observation.
	Observer Observer
	// FrontProxyClientDirs are the directories from which the kube-apiservers read
	// --proxy-client-cert-file (tls.crt), --proxy-client-key-file (tls.key) and
	// --requestheader-client-ca-file (ca.crt). nil means front-proxy-client in Dir.
	FrontProxyClientDirs []string
	Hold                 time.Duration // how long effects of trust and identity steps must persist; more than 0
	Timeout              time.Duration // for each step to be observed; 0 means DefaultTimeout
	// Settle is how long the trust ConfigMap must stay without the old CA; 0 means
	// DefaultSettle.
	Settle   time.Duration
	Poll     time.Duration // interval between two checks; 0 means 2 s
	Lifetime time.Duration // of the new leaf; 0 means certs.LeafLifetime
	KeyType  certs.KeyType // of new keys; empty means the default of certgen init
	// Signer has the key of the CA that signs the new leaf; nil means that the key is next to
	// the CA's certificate.
	Signer   *certs.RemoteSigner
	NewCA    *x509.Certificate // for ServingCA if Signer has its key; nil means that a CA is created
	Progress func(Event)       // called in order and synchronously; may be nil
	Now      func() time.Time
	Wait     func(context.Context, time.Duration) error // nil uses the real clock
	// APIServices are names for which Maintain waits, up to Within, until each has the Service
	// as its backend. If they are empty and Within is 0, Maintain does not wait.
	APIServices []string
	Within      time.Duration
	// ForceConflicts makes Maintain take ownership of caBundles, and of the data of the Secret,
	// from other field managers.
	ForceConflicts bool

	store      certs.Store // the directory, or the Secrets after they were read
	leased     bool        // the caller holds the Lease
	given      []string    // FrontProxyClientDirs as absolute paths
	otherDirs  []string    // the same, or nil if it is only the default in Dir
	resumeOnly bool        // Run begins no rotation
	afterWrite func()      // called after each change of files, for tests
}

// Run begins a rotation or resumes an unfinished one. It holds the lock of Dir and the Lease of
// the Service throughout. It returns *certs.InvalidError for an invalid option and
// *certs.RefusedError if the directory or cluster does not allow the rotation to begin; nothing
// has changed in either case. *BlockedError means that the rotation stopped in a safe state.
func Run(ctx context.Context, opts Options) (*State, error) {
	return underLock(ctx, opts, true, func(ctx context.Context, p *procedure) error {
		if p.state != nil {
			p.resetChecks()
			return p.run(ctx)
		}
		if opts.resumeOnly {
			return nil
		}
		p.state = &State{APIVersion: certs.APIVersion, Kind: stateKind, Rotation: opts.Rotation,
			StartedAt: p.opts.Now(), NewCA: p.opts.newCASum()}
		if ofFrontProxy(opts.Rotation) {
			p.state.FrontProxyClientDirs = p.opts.given
		}
		if err := p.begin(ctx); err != nil {
			p.state = nil
			return err
		}
		return p.run(ctx)
	})
}

// begin reads the CA that signs and runs the preflight check. It returns an error if the check
// fails. It retries transient errors for preflightTimeout, such as those of a restarting
// endpoint or a restarting kube-apiserver among several.
func (p *procedure) begin(ctx context.Context) error {
	if p.makeCA == nil {
		if _, err := p.readCA(); err != nil {
			return err
		}
	}
	patient := *p
	patient.opts.Timeout = min(p.opts.Timeout, preflightTimeout)
	err := patient.await(ctx, &step{name: "preflight"}, nil, stopping(func(ctx context.Context) error {
		p.state.Others = nil // discard the result of an earlier attempt
		return p.preflight(ctx)
	}))
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok {
		return err
	}
	if err = blocked.Missing; isRefusal(err) {
		if stopped, ok := errors.AsType[*stopError](err); ok {
			err = stopped.error // so that each of several errors has its own line
		}
		return err
	}
	return &certs.RefusedError{Path: p.opts.store.Path(),
		Reason: fmt.Sprintf("preflight check failed: %v", err)}
}

// isRefusal reports whether err is a refusal. A refusal occurs before any change, unless it is
// in a *BlockedError.
func isRefusal(err error) bool {
	_, refused := errors.AsType[*certs.RefusedError](err)
	_, owned := errors.AsType[*cluster.OwnedError](err)
	return refused || owned
}

// Abort undoes an unfinished rotation. After the rotation's first distrust step has begun, it
// returns *certs.RefusedError.
func Abort(ctx context.Context, opts Options) (*State, error) {
	return underLock(ctx, opts, false, func(ctx context.Context, p *procedure) error { return p.abort(ctx) })
}

// underLock calls do under the lock of the directory and the Lease of the Service. It passes the
// unfinished rotation or, if begin is true and there is none, a procedure without state.
func underLock(ctx context.Context, opts Options, begin bool,
	do func(context.Context, *procedure) error) (*State, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if opts.Observer == nil && (opts.Rotation == ServingCA || opts.Rotation == FrontProxyCA) {
		return nil, &certs.RefusedError{Path: "rotate " + opts.Rotation,
			Reason: "expected a cluster to observe, found none; certgen changes trust only in steps that it observes"}
	}
	if opts.inSecrets() { // the Lease serves as their lock
		return underLease(ctx, opts, begin, do)
	}
	if _, err := os.Stat(opts.Dir); errors.Is(err, fs.ErrNotExist) { // locking would create the directory
		return nil, &certs.RefusedError{Path: opts.Dir,
			Reason: "expected the directory of certgen init, found none"}
	}
	return certs.Locked(ctx, opts.store, func() (*State, error) {
		// This check needs no cluster.
		if _, err := recorded(opts, begin); err != nil {
			return nil, err
		}
		return underLease(ctx, opts, begin, do)
	})
}

// underLease calls do under the Lease. For a rotation in Secrets, it reads them under the Lease
// too, so that they cannot change meanwhile.
func underLease(ctx context.Context, opts Options, begin bool,
	do func(context.Context, *procedure) error) (state *State, err error) {
	if opts.Observer != nil { // before the Lease, which is a write
		if err := cluster.CheckClock(ctx, opts.Observer); err != nil {
			return nil, err
		}
	}
	err = opts.exclusive(ctx, func(ctx context.Context) error {
		if opts.store == nil {
			if opts.store, err = openSecrets(ctx, opts); err != nil {
				return err
			}
		}
		p, err := recorded(opts, begin)
		if err != nil {
			return err
		}
		err = do(ctx, p)
		state = p.state
		return err
	})
	return state, err
}

// exclusive calls do under the Leases of the certificates that it changes: those of the Service
// and those of the front proxy. All aggregated APIs of a cluster share the latter.
func (o *Options) exclusive(ctx context.Context, do func(context.Context) error) error {
	if o.Observer == nil || o.leased {
		return do(ctx)
	}
	if ofFrontProxy(o.Rotation) {
		serviceOnly := do
		do = func(ctx context.Context) error { return o.Observer.Exclusive(ctx, FrontProxy, serviceOnly) }
	}
	return o.Observer.Exclusive(ctx, o.Service, do)
}

// FrontProxy identifies the Lease of the front-proxy certificates.
var FrontProxy = certs.Service{Name: "front-proxy", Namespace: metav1.NamespaceSystem}

// recorded reads the recorded state. It returns an error if an unfinished rotation differs from
// the requested one.
func recorded(opts Options, begin bool) (*procedure, error) {
	state, err := ReadState(opts.store, opts.Rotation)
	if err != nil {
		return nil, err
	}
	record := opts.store.Path(StateSet(opts.Rotation), StateFile)
	if !state.Unfinished() {
		if state = nil; !begin {
			return nil, &certs.RefusedError{Path: record,
				Reason: "expected an unfinished rotation to abort, found none"}
		}
	} else if state.Rotation != opts.Rotation {
		return nil, &certs.RefusedError{Path: record, Reason: fmt.Sprintf(
			"expected no other rotation in progress, found %s; complete it first with certgen rotate %s, or reverse "+
				"it with --abort", state.Rotation, state.Rotation)}
	} else if ofFrontProxy(state.Rotation) && !slices.Equal(state.FrontProxyClientDirs, opts.given) {
		return nil, &certs.RefusedError{Path: record, Reason: fmt.Sprintf(
			"expected the --front-proxy-client with which the rotation started, %q, found %q; set the same value",
			state.FrontProxyClientDirs, opts.given)}
	}
	if sum := opts.newCASum(); sum != "" && state != nil && state.NewCA != sum {
		return nil, &certs.RefusedError{Path: record, Reason: fmt.Sprintf(
			"expected the --new-ca with which the rotation started (sha256:%.16s), found another (sha256:%.16s); "+
				"set the same value", state.NewCA, sum)}
	}
	p := newProcedure(opts)
	p.state = state
	return p, nil
}

func (o *Options) newCASum() string {
	if o.NewCA == nil {
		return ""
	}
	return certs.Fingerprint(o.NewCA)
}

// Validate returns an *certs.InvalidError for each invalid option, joined by errors.Join.
func (o Options) Validate() error { return o.complete() }

// complete validates the options and sets the defaults.
func (o *Options) complete() error {
	errs := []error{o.Service.Validate()}
	expect := func(right bool, field, value, reason string) {
		if !right {
			errs = append(errs, &certs.InvalidError{Field: field, Value: value, Reason: reason})
		}
	}
	expect(slices.Contains(Rotations(), o.Rotation), "rotation", o.Rotation,
		"expected one of "+strings.Join(Rotations(), ", "))
	expect(o.Dir != "" || o.inSecrets(), "dir", "",
		"expected the directory of certgen init, such as ./pki, or --secret and --ca-secret")
	if o.inSecrets() {
		for field, name := range map[string]string{"secret": o.Secret, "ca-secret": o.CASecret} {
			problems := validation.IsDNS1123Subdomain(name)
			expect(len(problems) == 0, field, name, "expected the Secret's name: "+strings.Join(problems, ", "))
		}
		expect(o.Secret != o.CASecret, "ca-secret", o.CASecret,
			"expected a name other than that of --secret: servers mount that Secret, and must not have the CA's key")
	}
	expect(o.Hold > 0 || o.Hold == 0 && o.Observer == nil && !o.inSecrets(), "hold", o.Hold.String(),
		"expected more than 0: a single observation is not reliable")
	errs = append(errs, certs.ValidateLeaf(o.Lifetime, o.KeyType, false))
	if o.Signer != nil {
		errs = append(errs, o.Signer.Validate())
	}
	expect((o.NewCA != nil) == (o.Rotation == ServingCA && o.Signer != nil), "new-ca", "",
		"expected the certificate of the new CA together with --signer for its key, and with serving-ca only")
	expect(o.Timeout >= 0, "timeout", o.Timeout.String(), "expected at least 0")
	expect(o.Settle >= 0, "settle", o.Settle.String(), "expected at least 0")
	expect(o.Within >= 0 && (o.Within > 0) == (len(o.APIServices) > 0), "wait", o.Within.String(),
		fmt.Sprintf("expected a time together with --apiservice, found %d names of APIServices; set both or neither",
			len(o.APIServices)))
	o.setDefaults()
	return errors.Join(errs...)
}

func (o *Options) inSecrets() bool { return o.Secret+o.CASecret != "" }

func (o *Options) setDefaults() {
	o.Timeout, o.Settle, o.Poll = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Settle, DefaultSettle),
		cmp.Or(o.Poll, defaultPoll)
	if o.store == nil && !o.inSecrets() {
		o.store = directory{certs.Dir(o.Dir)}
	}
	o.given, o.otherDirs = nil, nil
	for _, dir := range o.FrontProxyClientDirs {
		o.given = append(o.given, absolute(dir))
	}
	if !slices.Equal(o.given, []string{absolute(filepath.Join(o.Dir, certs.FrontProxyClientDir))}) {
		o.otherDirs = o.given
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.afterWrite == nil {
		o.afterWrite = func() {}
	}
	if o.Wait == nil {
		o.Wait = wait
	}
}

// absolute returns the absolute path. It returns path unchanged if there is no working
// directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
