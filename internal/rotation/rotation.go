// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
)

// The rotations.
const (
	Serving      = "serving"        // a new serving certificate of the same CA
	ServingCA    = "serving-ca"     // a new serving CA, and a certificate of it
	ProxyClient  = "proxy-client"   // a new client certificate of kube-apiserver's front proxy, of the same CA
	FrontProxyCA = "front-proxy-ca" // a new CA of the front proxy, and a client certificate of it
)

// Rotations lists the rotations.
func Rotations() []string { return []string{Serving, ServingCA, ProxyClient, FrontProxyCA} }

// The defaults of Options.
const (
	// DefaultHold is longer than what nobody can observe: kube-aggregator's informer, connections that are idle for 90 s,
	// and the minute after which a server looks at its files again when it missed a change.
	DefaultHold = 10 * time.Minute
	// DefaultTimeout is more than the two minutes in which kubelet brings a changed Secret into a pod.
	DefaultTimeout = 5 * time.Minute
	// DefaultSettle is longer than the minute after which kube-apiserver adds the CAs in its files to the ConfigMap.
	DefaultSettle = 90 * time.Second

	defaultPoll = 2 * time.Second
	lockWait    = 5 * time.Second // as certgen init waits
)

// Observer is what a rotation sees and changes of a cluster; *Cluster is one.
type Observer interface {
	APIServices(ctx context.Context, s certs.Service) ([]apiregistrationv1.APIService, error)
	Endpoints(ctx context.Context, s certs.Service) ([]Endpoint, error)
	KubeAPIServers(ctx context.Context) ([]string, error)
	Served(ctx context.Context, s certs.Service, trust certs.Bundle) ([]Served, error)
	ApplyCABundle(ctx context.Context, s certs.Service, bundle certs.Bundle) ([]Applied, error)
	SeenBy(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error
	Answers(ctx context.Context, kubeAPIServer string, a apiregistrationv1.APIService) error
	ProbeFrontProxy(ctx context.Context, e Endpoint, s certs.Service, trust certs.Bundle, proxy *certs.KeyPair) (ProbeResult, error)
	TrustConfigMap(ctx context.Context) (*corev1.ConfigMap, error)
	// AggregatedServices lists all Services that APIServices name: the front proxy's certificate is shown to each.
	AggregatedServices(ctx context.Context) ([]certs.Service, error)
	// ClockSkew is how far the clock here is ahead of that of kube-apiserver.
	ClockSkew(ctx context.Context) (time.Duration, error)
	// DistrustFrontProxyCA takes one CA out of the trust ConfigMap, in place.
	DistrustFrontProxyCA(ctx context.Context, ca *x509.Certificate) error
}

// Options say what to rotate and how patiently.
type Options struct {
	Rotation string // see Rotations
	Dir      string // as certgen init made it
	Service  certs.Service
	Observer Observer // nil only for Serving and ProxyClient: then files are written and nothing is observed
	// FrontProxyClientDirs are the directories from which the kube-apiservers read --proxy-client-cert-file (tls.crt),
	// --proxy-client-key-file (tls.key) and --requestheader-client-ca-file (ca.crt); nil means front-proxy-client in Dir.
	FrontProxyClientDirs []string
	Hold                 time.Duration // how long what steps of trust and identity did must stay observed; more than 0
	Timeout              time.Duration // for each step to be observed; 0 means DefaultTimeout
	// Settle is how long the trust ConfigMap must stay without the old CA; 0 means DefaultSettle.
	Settle   time.Duration
	Poll     time.Duration // between two looks; 0 means 2 s
	Lifetime time.Duration // of the new leaf; 0 means certs.LeafLifetime
	KeyType  certs.KeyType // of new keys; empty means that of certgen init
	Progress func(Event)   // called in order, and waited for; nil means nobody is told
	Now      func() time.Time
	Wait     func(context.Context, time.Duration) error // nil waits by the real clock

	wrote func() // called after each change of files, for tests
}

// Run begins a rotation, or takes up the one that Dir records as unfinished. It holds the lock of Dir all the time.
// *certs.InvalidError is a wrong option, *certs.RefusedError a directory or cluster that does not allow to begin:
// nothing has changed then. *BlockedError is a stop in a safe state.
func Run(ctx context.Context, opts Options) (*State, error) {
	return withMachine(ctx, opts, func(m *machine, p *procedure) error {
		if opts.Observer != nil {
			if err := checkClock(ctx, opts.Observer); err != nil {
				return err
			}
		}
		if m.state == nil {
			if p.preflight != nil {
				if err := p.preflight(ctx); err != nil {
					return err
				}
			}
			m.state = &State{
				APIVersion: certs.APIVersion, Kind: stateKind, Rotation: opts.Rotation, StartedAt: m.opts.Now(), FrontProxyClientDirs: m.opts.otherDirs(),
				LeftOut: p.leftOut,
			}
		}
		p.startedAt, p.leftOut = m.state.StartedAt, m.state.LeftOut
		return m.run(ctx)
	})
}

// Abort takes the unfinished rotation in Dir back. After its first step of distrust that is *certs.RefusedError.
func Abort(ctx context.Context, opts Options) (*State, error) {
	return withMachine(ctx, opts, func(m *machine, p *procedure) error {
		if m.state == nil {
			return &certs.RefusedError{Path: filepath.Join(opts.Dir, StateFile), Reason: "expected an unfinished rotation to abort, found none"}
		}
		p.startedAt, p.leftOut = m.state.StartedAt, m.state.LeftOut
		return m.abort(ctx)
	})
}

// withMachine calls do, under the directory's lock, with the unfinished rotation or with no state.
func withMachine(ctx context.Context, opts Options, do func(*machine, *procedure) error) (_ *State, err error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if opts.Observer == nil && (opts.Rotation == ServingCA || opts.Rotation == FrontProxyCA) {
		return nil, fmt.Errorf("rotate %s: expected a cluster to observe, found none; trust cannot be changed without", opts.Rotation)
	}
	lockCtx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := certs.Lock(lockCtx, opts.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	state, err := ReadState(opts.Dir)
	if err != nil {
		return nil, err
	}
	if !state.Unfinished() {
		state = nil
	} else if state.Rotation != opts.Rotation {
		return nil, &certs.RefusedError{Path: filepath.Join(opts.Dir, StateFile), Reason: fmt.Sprintf(
			"expected no other rotation under way, found %s; finish it first: certgen rotate %s, or take it back with --abort", state.Rotation, state.Rotation)}
	} else if found := opts.otherDirs(); !slices.Equal(state.FrontProxyClientDirs, found) {
		return nil, &certs.RefusedError{Path: filepath.Join(opts.Dir, StateFile), Reason: fmt.Sprintf(
			"expected the --front-proxy-client with which the rotation began, %q, found %q; give the same again", state.FrontProxyClientDirs, found)}
	}
	p, err := newProcedure(opts)
	if err != nil {
		return nil, err
	}
	m := &machine{opts: opts, steps: p.steps, state: state}
	err = do(m, p)
	return m.state, err
}

// Validate returns all that is wrong with the options, as *certs.InvalidError joined by errors.Join.
func (o Options) Validate() error { return o.complete() }

// complete validates and sets the defaults.
func (o *Options) complete() error {
	errs := []error{o.Service.Validate()}
	if !slices.Contains(Rotations(), o.Rotation) {
		errs = append(errs, unknownRotation(o.Rotation))
	}
	if o.Dir == "" {
		errs = append(errs, &certs.InvalidError{Field: "dir", Reason: "expected the directory that certgen init made, such as ./pki"})
	}
	if o.Hold <= 0 && o.Observer != nil || o.Hold < 0 {
		errs = append(errs, &certs.InvalidError{Field: "hold", Value: o.Hold.String(), Reason: "expected more than 0: what was seen once may not last"})
	}
	for field, d := range map[string]time.Duration{"timeout": o.Timeout, "settle": o.Settle} {
		if d < 0 {
			errs = append(errs, &certs.InvalidError{Field: field, Value: d.String(), Reason: "expected no less than 0"})
		}
	}
	if o.FrontProxyClientDirs == nil {
		o.FrontProxyClientDirs = []string{filepath.Join(o.Dir, certs.FrontProxyClientDir)}
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.Timeout, DefaultTimeout}, {&o.Settle, DefaultSettle}, {&o.Poll, defaultPoll}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.wrote == nil {
		o.wrote = func() {}
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	return errors.Join(errs...)
}

// otherDirs are FrontProxyClientDirs, absolute, where they are not the one in Dir.
func (o *Options) otherDirs() []string {
	if slices.Equal(o.FrontProxyClientDirs, []string{filepath.Join(o.Dir, certs.FrontProxyClientDir)}) {
		return nil
	}
	var out []string
	for _, dir := range o.FrontProxyClientDirs {
		if abs, err := filepath.Abs(dir); err == nil { // without a working directory it stays as it is
			dir = abs
		}
		out = append(out, dir)
	}
	return out
}

func unknownRotation(name string) error {
	return &certs.InvalidError{Field: "rotation", Value: name, Reason: "expected one of " + strings.Join(Rotations(), ", ")}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
