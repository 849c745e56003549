// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
)

// StepKind classifies a step by what it may break. Trust comes before identity, and identity
// before distrust. Each step has only one kind.
type StepKind string

// The kinds of steps.
const (
	Files    StepKind = "files"    // files that nothing serves, presents or trusts
	Trust    StepKind = "trust"    // the new CA is trusted in addition to the old one
	Identity StepKind = "identity" // the new certificate replaces the old one
	Distrust StepKind = "distrust" // the old CA is no longer trusted
)

// step is one row of a rotation's table. All functions may be called again after an
// interruption. Those that have nothing to do may be nil.
type step struct {
	name  string
	kind  StepKind
	about string // the action and the awaited effect, for people
	do    func(context.Context) error
	// observed returns nil if the effect of the step is observed everywhere, and otherwise an
	// error that describes what is missing. It may also have repaired that. A *stopError means
	// that waiting does not help.
	observed func(context.Context) error
	hold     bool // wait before the next step, see Options.Hold
	// needs returns nil if the requirements of the step are observed everywhere. It is called
	// right before do, even in a run that resumes the step days later. A step that has not begun
	// needs the observation of the previous step instead, if that has a hold.
	needs func(context.Context) error
	// undo restores the state before the step, and undone returns nil if that is observed
	// everywhere. The last step removes what undo needs, so it has neither.
	undo, undone func(context.Context) error
	// undoReason returns an error if the effect of the step causes requests of users to fail
	// now. block then undoes the step. It always undoes distrust steps.
	undoReason func(context.Context) error
}

func (s *step) mustUndo(ctx context.Context) error {
	if s.undoReason == nil {
		return nil
	}
	return s.undoReason(ctx)
}

// procedure is one rotation: its steps and their shared state.
type procedure struct {
	opts  Options
	steps []step
	state *State // nil until the rotation begins

	caDir    string                                       // name of the CA's set
	leafDirs []string                                     // names of the leaves' sets
	makeCA   func(leaf *x509.Certificate) certs.CAOptions // nil if the CA does not change
	issue    func(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error)
	// preflight returns an error if the rotation cannot begin. The CA that signs is checked
	// before it.
	preflight func(context.Context) error
	set       string // of the record; the key pairs' sets are below it
	*pairs           // nil until they are staged, see loaded

	// settled is the time since which the ConfigMap has been without the CA to remove. It is not
	// recorded: a run that resumes the rotation waits again for the full time.
	settled time.Time
	noted   map[string]bool             // notes that were emitted
	failing map[certs.Service]time.Time // since when a third-party API fails
}

var tables = map[string]func(*procedure){
	Serving: (*procedure).serving, ServingCA: (*procedure).servingCA, ProxyClient: (*procedure).proxyClient,
	FrontProxyCA: (*procedure).frontProxyCA,
}

// newProcedure returns the procedure for opts.Rotation, which must be one of Rotations.
func newProcedure(opts Options) *procedure {
	p := &procedure{opts: opts, set: StateSet(opts.Rotation), noted: map[string]bool{},
		failing: map[certs.Service]time.Time{}}
	tables[opts.Rotation](p)
	for i := range p.steps {
		s := &p.steps[i]
		if opts.Observer == nil {
			s.needs, s.observed, s.undone, s.undoReason = nil, nil, nil, nil
		}
		s.needs, s.observed, s.undone = p.loaded(s.needs), p.loaded(s.observed), p.loaded(s.undone)
		if s.kind != Files { // Files steps create or remove them
			s.do, s.undo = p.loaded(s.do), p.loaded(s.undo)
		}
	}
	return p
}

func (p *procedure) stageStep(about string) step {
	return step{name: "stage", kind: Files, about: about, do: p.stage, undo: p.unstage}
}

func (p *procedure) finishStep() step {
	about := "remove the copies of the old certificate and key"
	if p.makeCA != nil {
		about = "move the old CA to " + p.caDir + ".old-TIME, and remove the copy of the old certificate"
	}
	return step{name: "finish", kind: Files, about: about, do: p.finish}
}

// StepInfo describes a step before it runs.
type StepInfo struct {
	Name  string   `json:"name"`
	Kind  StepKind `json:"kind"`
	About string   `json:"about"`
	Holds bool     `json:"holds"`
}

// Plan returns the steps of one of Rotations without any access to files or a cluster.
func Plan(rotation string) []StepInfo {
	var out []StepInfo
	for _, s := range newProcedure(Options{Rotation: rotation}).steps {
		out = append(out, StepInfo{s.name, s.kind, s.about, s.hold})
	}
	return out
}

// stopError ends the wait for a step immediately.
type stopError struct{ error }

func (e *stopError) Unwrap() error { return e.error }

// waitError is an error that may disappear regardless of its cause; it does not end the wait for
// a step.
type waitError struct{ error }

func (e *waitError) Unwrap() error { return e.error }

// BlockedError reports that a rotation stopped in a safe state because the expected effect was
// not observed, and needs manual action. The certificates in use are trusted, so requests
// succeed, unless a step could not be undone. Running the rotation again resumes it; Abort
// undoes it.
type BlockedError struct {
	Rotation, Step string
	Waited         time.Duration
	Missing        error    // the missing observation
	RolledBack     StepKind // kind of the first of the steps that were undone
	RollbackError  error    // why one of them was not undone
	Aborting       bool     // the step was being undone
}

func (e *BlockedError) Error() string {
	state, remedy := "the certificates in use remain trusted", "run the same command again, or reverse it with --abort"
	switch {
	case e.RollbackError != nil:
		state = e.RollbackError.Error()
	case e.RolledBack == Distrust:
		state = "the old CA is trusted again; " + state
	case e.RolledBack == Identity:
		state = "the old certificate is in use; " + state
	}
	if e.Aborting {
		remedy = "run --abort again"
	}
	return fmt.Sprintf("rotate %s: step %s blocked after %s: %v; %s; correct the cause and %s",
		e.Rotation, e.Step, e.Waited.Round(time.Second), e.Missing, state, remedy)
}

func (e *BlockedError) Unwrap() error { return e.Missing }

// isPermanent reports whether waiting cannot resolve err. An error of the connection or of a
// busy kube-apiserver is not permanent.
func isPermanent(err error) bool {
	_, broken := errors.AsType[*stopError](err)
	return broken && !isTransient(err)
}

// isRefused reports whether a connection was refused. Windows has its own number for that,
// WSAECONNREFUSED.
func isRefused(err error) bool {
	return utilnet.IsConnectionRefused(err) || errors.Is(err, syscall.Errno(10061))
}

// isTransient reports whether err is a refused or lost connection, a timeout, or a response that
// asks for a retry. A response that is not kube-apiserver's own is transient only with status
// 429, because kube-apiserver responds with 503 if it does not trust a server.
func isTransient(err error) bool {
	if _, wait := errors.AsType[*waitError](err); wait || isRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	if _, ok := errors.AsType[*certs.UnreachableError](err); ok {
		return true
	}
	if status, ok := errors.AsType[*cluster.StatusError](err); ok {
		return status.Status == http.StatusTooManyRequests
	}
	return apply.Changed(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
