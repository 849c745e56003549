// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// run takes the rotation to its end from wherever the record says that it is.
func (p *procedure) run(ctx context.Context) error {
	if last := len(p.state.Steps) - 1; p.state.Aborting && last >= 0 {
		// It may be half taken back. What the first step made may be gone, and nobody uses it.
		p.state.Steps[last].ObservedAt, p.state.Steps[last].FinishedAt = nil, nil
		if last == 0 {
			p.state.Steps = nil
		}
	}
	p.state.Blocked, p.state.Aborting = "", false
	for i := range p.steps {
		if r := p.record(&p.steps[i]); r != nil && r.FinishedAt != nil {
			continue
		}
		if err := p.runStep(ctx, i); err != nil {
			return err
		}
	}
	return p.end(Done)
}

func (p *procedure) end(outcome Outcome) error {
	now := p.opts.Now()
	p.state.Outcome, p.state.EndedAt = outcome, &now
	return p.save(nil, EventEnded, string(outcome))
}

// save stores the record, and then tells what happened.
func (p *procedure) save(s *step, what EventType, message string) error {
	if err := p.state.write(p.opts.store, p.set); err != nil {
		return err
	}
	p.event(s, what, message)
	return nil
}

func (p *procedure) record(s *step) *StepState {
	i := slices.IndexFunc(p.state.Steps, func(r StepState) bool { return r.Name == s.name })
	if i < 0 {
		return nil
	}
	return &p.state.Steps[i]
}

// runStep does a step, waits until it is observed, and holds. A step that was observed before is not done again.
func (p *procedure) runStep(ctx context.Context, i int) error {
	s := &p.steps[i]
	r := p.record(s)
	if r == nil || r.ObservedAt == nil {
		if err := p.ready(ctx, i); err != nil {
			return err
		}
	}
	if r == nil {
		p.state.Steps = append(p.state.Steps, StepState{Name: s.name, StartedAt: p.opts.Now()})
		r = p.record(s)
		if err := p.save(s, EventStarted, s.about); err != nil {
			return err
		}
	} else {
		p.event(s, EventResumed, s.about)
	}
	if r.ObservedAt == nil {
		if err := p.await(ctx, s, s.do, s.observed); err != nil {
			return p.block(ctx, i, err)
		}
		if err := p.mark(&r.ObservedAt, s, EventObserved); err != nil {
			return err
		}
	}
	if err := p.hold(ctx, s, s.observed); err != nil {
		if _, ok := errors.AsType[*BlockedError](err); ok {
			r.ObservedAt = nil // it is done again
		}
		return p.block(ctx, i, err)
	}
	return p.mark(&r.FinishedAt, s, EventFinished)
}

// mark records when something happened to a step.
func (p *procedure) mark(at **time.Time, s *step, what EventType) error {
	now := p.opts.Now()
	*at = &now
	return p.save(s, what, "")
}

// ready returns nil when what a step needs is seen now: days may have passed since it was. Before the step has begun,
// the one before it is done again by the next run.
func (p *procedure) ready(ctx context.Context, i int) error {
	s := &p.steps[i]
	needs := s.needs
	if p.record(s) != nil {
		if s.kind == Distrust {
			needs = stopping(needs) // what is distrusted already is trusted again at once
		}
		return p.block(ctx, i, p.await(ctx, s, nil, needs))
	}
	if i > 0 && p.steps[i-1].hold {
		needs = p.steps[i-1].observed
	}
	err := p.await(ctx, s, nil, needs)
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		before := p.record(&p.steps[i-1])
		before.ObservedAt, before.FinishedAt = nil, nil
		return p.block(ctx, i-1, blocked)
	}
	return err
}

// stopping takes what is not seen for a reason to stop.
func stopping(seen func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := seen(ctx); err != nil {
			return &stopError{err}
		}
		return nil
	}
}

// hold looks for as long as Options.Hold whether what was observed stays so. What is no longer seen must be seen again
// within the timeout, and the hold starts over then, as it does in a run that takes the step up: what nobody looked at
// does not count. What is lost again and again is kept so by somebody else, and blocks. Within the timeout the hold
// also starts over when a kube-apiserver or an endpoint comes or goes.
func (p *procedure) hold(ctx context.Context, s *step, seen func(context.Context) error) error {
	if !s.hold {
		return nil
	}
	p.event(s, EventHolding, "for "+p.opts.Hold.Round(time.Second).String())
	began, losses := p.opts.Now(), 0
	before, _ := p.processes(ctx)
	for since := began; ; {
		if lost := seen(ctx); lost != nil {
			if losses++; losses > maxHoldRestarts {
				return &BlockedError{Rotation: p.state.Rotation, Step: s.name, Waited: p.opts.Now().Sub(began),
					Aborting: p.state.Aborting,
					Missing:  fmt.Errorf("lost %d times during the hold: %w", losses, lost)}
			}
			if err := p.await(ctx, s, nil, seen); err != nil {
				return err
			}
			since = p.opts.Now()
		}
		// Only within the timeout: an endpoint that keeps restarting must not keep the step from ending, and all that
		// are listed are checked anyway.
		if now, ok := p.processes(ctx); ok && !slices.Equal(now, before) && p.opts.Now().Sub(began) < p.opts.Timeout {
			p.event(s, EventWaiting,
				fmt.Sprintf("the hold starts again: kube-apiservers and endpoints changed from %q to %q", before, now))
			since, before = p.opts.Now(), now
		}
		left := since.Add(p.opts.Hold).Sub(p.opts.Now())
		if left <= 0 {
			return nil
		}
		if err := p.opts.Wait(ctx, min(left, max(p.opts.Poll, p.opts.Hold/maxHoldChecks))); err != nil {
			return p.interrupted(s, err)
		}
	}
}

// processes are the kube-apiservers and the ready endpoints of the Service. One that is restarted in order takes itself
// out of the list meanwhile, so that nothing else tells.
func (p *procedure) processes(ctx context.Context) (out []string, ok bool) {
	if p.opts.Observer == nil {
		return nil, false
	}
	kubeAPIServers, err := p.opts.Observer.KubeAPIServers(ctx)
	endpoints, endpointsErr := p.opts.Observer.Endpoints(ctx, p.opts.Service)
	out = slices.Clone(kubeAPIServers)
	for _, e := range endpoints {
		if e.Ready {
			out = append(out, e.Address)
		}
	}
	slices.Sort(out)
	return out, err == nil && endpointsErr == nil
}

// maxHoldRestarts lets endpoints be replaced one after the other while a step holds.
const maxHoldRestarts = 20

// maxHoldChecks is how often a hold looks, at most: each look asks every endpoint and every kube-apiserver.
const maxHoldChecks = 60

func (p *procedure) interrupted(s *step, err error) error {
	return fmt.Errorf("rotate %s: step %s: %w; run the command again to continue", p.state.Rotation, s.name, err)
}

// await does something, if there is something to do, and asks until it is seen everywhere. *BlockedError tells that the
// time is over, or that a reason came up that waiting does not mend.
func (p *procedure) await(ctx context.Context, s *step, do, seen func(context.Context) error) error {
	began, said := p.opts.Now(), ""
	for {
		var missing error
		if ctx.Err() != nil { // such as for a Lease that was lost: somebody else may write now
			return p.interrupted(s, context.Cause(ctx))
		}
		if do != nil {
			if missing = do(ctx); missing == nil {
				do = nil
			} else {
				missing = &stopError{missing}
			}
		}
		if missing == nil {
			missing = seen(ctx)
		}
		waited := p.opts.Now().Sub(began)
		switch {
		case missing == nil:
			return nil
		case ctx.Err() != nil:
			return p.interrupted(s, context.Cause(ctx))
		case isPermanent(missing) || waited >= p.opts.Timeout:
			return &BlockedError{Rotation: p.state.Rotation, Step: s.name, Waited: waited, Aborting: p.state.Aborting,
				Missing: p.expired(missing)}
		case missing.Error() != said:
			said = missing.Error()
			p.event(s, EventWaiting, said)
		}
		if err := p.opts.Wait(ctx, p.opts.Poll); err != nil {
			return p.interrupted(s, err)
		}
	}
}

// expired says what to do where the certificate in use ended while the rotation of its CA was blocked, and the CA did
// not: no step can be seen any more.
func (p *procedure) expired(missing error) error {
	if p.makeCA == nil || len(p.state.Steps) == 0 {
		return missing
	}
	leaf, leafErr := certs.ReadCertificate(p.opts.store, p.leafDirs[0])
	ca, caErr := certs.ReadCertificate(p.opts.store, p.caDir)
	if now := p.opts.Now(); leafErr != nil || caErr != nil || !now.After(leaf.NotAfter) || now.After(ca.NotAfter) {
		return missing
	}
	return fmt.Errorf("%w; the certificate in use expired at %s, so no step can be observed: to give up this "+
		"rotation, remove %s, and renew the certificate",
		missing, leaf.NotAfter.UTC().Format(time.RFC3339), p.opts.store.Path(p.set))
}

// block records why a step stopped and leaves a safe state: after a step of distrust the old CA is trusted again, all
// steps of distrust are open, and the rotation can be aborted. The same goes for a step that does harm now.
func (p *procedure) block(ctx context.Context, i int, err error) error {
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok {
		return err
	}
	s := &p.steps[i]
	for ; i >= 0; i-- {
		last := &p.steps[i]
		if last.kind != Distrust {
			harm := last.mustUndo(ctx)
			if harm == nil {
				break
			}
			if !isRefusal(blocked.Missing) { // which says it
				blocked.Missing = fmt.Errorf("%w; %w", blocked.Missing, harm)
			}
		}
		if err := p.rollBack(ctx, last); err != nil {
			if failed, ok := errors.AsType[*BlockedError](err); ok {
				err = failed.Missing
			}
			blocked.RollbackError = fmt.Errorf("step %s could not be undone: %w", last.name, err)
			break
		}
		blocked.RolledBack = last.kind
	}
	p.state.Blocked = blocked.Error()
	p.event(s, EventBlocked, blocked.Missing.Error())
	return errors.Join(p.state.write(p.opts.store, p.set), blocked)
}

// rollBack undoes a step of a rotation that goes on later. Cut short, it is done again then.
func (p *procedure) rollBack(ctx context.Context, s *step) error {
	r := p.record(s)
	r.ObservedAt, r.FinishedAt = nil, nil
	if err := p.state.write(p.opts.store, p.set); err != nil {
		return err
	}
	return p.undo(ctx, s)
}

// undo takes one step back, and takes it out of the record when that is seen, and was for as long as the hold if it has
// to.
func (p *procedure) undo(ctx context.Context, s *step) error {
	if err := p.await(ctx, s, s.undo, s.undone); err != nil {
		return err
	}
	if err := p.hold(ctx, s, s.undone); err != nil {
		return err
	}
	p.state.Steps = slices.DeleteFunc(p.state.Steps, func(r StepState) bool { return r.Name == s.name })
	return p.save(s, EventUndone, "")
}

// abort takes back all steps, the last first, unless the old CA may be distrusted already.
func (p *procedure) abort(ctx context.Context) error {
	for i := range p.steps {
		if s := &p.steps[i]; p.record(s) != nil && (s.kind == Distrust || i == len(p.steps)-1) {
			return &certs.RefusedError{Path: p.opts.store.Path(p.set, StateFile), Reason: fmt.Sprintf(
				"expected a rotation before its step %s, found that this step has started, so the rotation cannot be "+
					"aborted; complete the rotation", s.name)}
		}
	}
	p.state.Blocked, p.state.Aborting = "", true
	p.resetChecks()
	if err := p.state.write(p.opts.store, p.set); err != nil {
		return err
	}
	for i := range slices.Backward(p.steps) {
		s := &p.steps[i]
		if p.record(s) == nil {
			continue
		}
		// Whatever uses the new certificate must have the old one again before its CA is trusted no more.
		if err := p.undo(ctx, s); err != nil {
			p.state.Blocked = err.Error()
			return errors.Join(p.state.write(p.opts.store, p.set), err)
		}
	}
	return p.end(Aborted)
}

// event tells what happened; step may be nil.
func (p *procedure) event(s *step, what EventType, message string) {
	if p.opts.Progress == nil {
		return
	}
	now := p.opts.Now()
	e := Event{Kind: eventKind, Time: now, Rotation: p.state.Rotation, Type: what, Message: message}
	since := p.state.StartedAt
	if s != nil {
		e.Step, e.StepKind = s.name, s.kind
		if r := p.record(s); r != nil {
			since = r.StartedAt
		}
	}
	e.ElapsedSeconds = now.Sub(since).Seconds()
	p.opts.Progress(e)
}
