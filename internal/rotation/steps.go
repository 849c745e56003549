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

// StepKind says what a step may break. Trust comes before identity, and identity before distrust; no step is two of
// them.
type StepKind string

// The kinds of steps.
const (
	Files    StepKind = "files"    // files that nobody serves, presents or trusts
	Trust    StepKind = "trust"    // the new CA is trusted beside the old one
	Identity StepKind = "identity" // the new certificate takes the place of the old one
	Distrust StepKind = "distrust" // the old CA is trusted no more
)

// step is one row of a rotation's table. Each function may be called again after it was cut short, and one that has
// nothing to do may be left out.
type step struct {
	name  string
	kind  StepKind
	about string // what is done and what is waited for, for people
	do    func(context.Context) error
	// observed returns nil when the effect of the step is seen everywhere, and otherwise what is missing, which it may
	// have put right meanwhile. A *stopError means that waiting is no help.
	observed func(context.Context) error
	hold     bool // wait before the next step, see Options.Hold
	// needs returns nil when what the step relies on is seen everywhere. It is asked right before do, also by a run
	// that takes the step up days later. A step that has not begun needs what the one before it held, if that held.
	needs func(context.Context) error
	// undo brings back what was before the step, and undone returns nil when that is seen everywhere. The last step,
	// which removes what undo needs, has none.
	undo, undone func(context.Context) error
	// harms returns why what the step did takes answers from users now, so that block undoes it. Steps of distrust
	// always are.
	undoReason func(context.Context) error
}

func (s *step) mustUndo(ctx context.Context) error {
	if s.undoReason == nil {
		return nil
	}
	return s.undoReason(ctx)
}

// procedure is one rotation: its steps, and what they share.
type procedure struct {
	opts  Options
	steps []step
	state *State // nil until it begins

	caDir    string                                       // name of the CA's set
	leafDirs []string                                     // and of the leaf's
	makeCA   func(leaf *x509.Certificate) certs.CAOptions // nil where the CA stays
	issue    func(ca *certs.CA, old *x509.Certificate) (*certs.KeyPair, error)
	// preflight returns an error if the rotation cannot begin. The CA that signs is checked before it.
	preflight func(context.Context) error
	set       string // of the record, and above those of the pairs
	*pairs           // nil until they are staged, see loaded

	// settled is since when the ConfigMap has been without the CA to remove. It is not recorded: a run that takes the
	// rotation up looks again for as long.
	settled time.Time
	noted   map[string]bool             // notes that were told
	failing map[certs.Service]time.Time // since when an API of others fails
}

var tables = map[string]func(*procedure){
	Serving: (*procedure).serving, ServingCA: (*procedure).servingCA, ProxyClient: (*procedure).proxyClient,
	FrontProxyCA: (*procedure).frontProxyCA,
}

// newProcedure is for one of Rotations.
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
		if s.kind != Files { // which make them, or remove them
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

// StepInfo describes a step before it is done.
type StepInfo struct {
	Name  string   `json:"name"`
	Kind  StepKind `json:"kind"`
	About string   `json:"about"`
	Holds bool     `json:"holds"`
}

// Plan lists the steps of one of Rotations without looking at anything.
func Plan(rotation string) []StepInfo {
	var out []StepInfo
	for _, s := range newProcedure(Options{Rotation: rotation}).steps {
		out = append(out, StepInfo{s.name, s.kind, s.about, s.hold})
	}
	return out
}

// stopError ends the waiting for a step at once.
type stopError struct{ error }

func (e *stopError) Unwrap() error { return e.error }

// waitError is what may be seen later whatever is wrong: it does not end the waiting for a step.
type waitError struct{ error }

func (e *waitError) Unwrap() error { return e.error }

// BlockedError says that a rotation stopped in a safe state and needs a person: what was to be seen was not. What is in
// use is trusted, so requests are answered, unless a step could not be taken back. Running the rotation again takes it
// up; Abort takes it back.
type BlockedError struct {
	Rotation, Step string
	Waited         time.Duration
	Missing        error    // what was not seen
	RolledBack     StepKind // of the steps that were taken back, the first
	RollbackError  error    // why one of them was not
	Aborting       bool     // the step was being taken back
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

// isPermanent tells failures that waiting does not mend. One that came from the way there, or from a kube-apiserver
// that is busy, it may.
func isPermanent(err error) bool {
	_, broken := errors.AsType[*stopError](err)
	return broken && !isTransient(err)
}

// isRefused is true for a connection that was refused. Windows has a number of its own for that, WSAECONNREFUSED.
func isRefused(err error) bool {
	return utilnet.IsConnectionRefused(err) || errors.Is(err, syscall.Errno(10061))
}

// isTransient is true for connections that were refused or lost, timeouts, and answers that ask to try again. An answer
// of another kind is one, where it is not kube-apiserver's own: 503 is what it says when it does not trust a server.
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
