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

// run executes the remaining steps of the rotation according to its record.
func (p *procedure) run(ctx context.Context) error {
	if last := len(p.state.Steps) - 1; p.state.Aborting && last >= 0 {
		// The last step may be partly undone, so it is repeated. If it is the first step, its
		// files may be gone and nothing uses them, so the rotation starts over.
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

// save stores the record and then emits an event.
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

// runStep executes a step, waits until its effect is observed, and holds. It does not repeat a
// step that was observed before.
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
			r.ObservedAt = nil // the step is repeated
		}
		return p.block(ctx, i, err)
	}
	return p.mark(&r.FinishedAt, s, EventFinished)
}

// mark records the time of a step's progress and emits an event.
func (p *procedure) mark(at **time.Time, s *step, what EventType) error {
	now := p.opts.Now()
	*at = &now
	return p.save(s, what, "")
}

// ready returns nil if the requirements of a step are observed now; days may have passed since
// they were observed last. If that fails before the step has begun, the next run repeats the
// previous step.
func (p *procedure) ready(ctx context.Context, i int) error {
	s := &p.steps[i]
	needs := s.needs
	if p.record(s) != nil {
		if s.kind == Distrust {
			needs = stopping(needs) // block restores trust immediately
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

// stopping turns each error of seen into a *stopError, so that await does not wait.
func stopping(seen func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := seen(ctx); err != nil {
			return &stopError{err}
		}
		return nil
	}
}

// hold checks for Options.Hold that the observed effect persists. If the effect is lost, it must
// be observed again within the timeout, and the hold starts over. The hold also starts over in a
// run that resumes the step, because nothing was checked in between. If the effect is lost more
// than maxHoldRestarts times, something else keeps removing it, and the step blocks. Within the
// timeout, the hold also starts over when a kube-apiserver or an endpoint appears or disappears.
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
		// This applies only within the timeout, so that an endpoint that keeps restarting cannot
		// prevent the step from finishing. All listed endpoints are checked anyway.
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

// processes returns the kube-apiservers and the ready endpoints of the Service. A process that
// restarts gracefully removes itself from the list meanwhile, which is the only sign of the
// restart.
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

// maxHoldRestarts allows endpoints to be replaced one after the other during a hold.
const maxHoldRestarts = 20

// maxHoldChecks limits the number of checks in a hold, because each check queries all endpoints
// and all kube-apiservers.
const maxHoldChecks = 60

func (p *procedure) interrupted(s *step, err error) error {
	return fmt.Errorf("rotate %s: step %s: %w; run the command again to continue", p.state.Rotation, s.name, err)
}

// await calls do, unless it is nil, and polls until seen returns nil. It returns *BlockedError
// after the timeout, or if an error is permanent.
func (p *procedure) await(ctx context.Context, s *step, do, seen func(context.Context) error) error {
	began, said := p.opts.Now(), ""
	for {
		var missing error
		if ctx.Err() != nil { // for example, a lost Lease: another process may write now
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

// expired adds a remedy to missing if the certificate in use expired while the rotation of its
// still valid CA was blocked. No step can be observed any more then.
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

// block records why step i stopped and establishes a safe state. It rolls back all distrust
// steps, so that the old CA is trusted again and the rotation can be aborted. It also rolls back
// a step whose undoReason returns an error.
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
			if !isRefusal(blocked.Missing) { // the refusal already contains it
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

// rollBack undoes a step of a rotation that continues later. If it is interrupted, the step is
// repeated.
func (p *procedure) rollBack(ctx context.Context, s *step) error {
	r := p.record(s)
	r.ObservedAt, r.FinishedAt = nil, nil
	if err := p.state.write(p.opts.store, p.set); err != nil {
		return err
	}
	return p.undo(ctx, s)
}

// undo undoes one step. It removes the step from the record after that was observed, and for
// steps with a hold stayed so for the hold.
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

// abort undoes all steps, the last first. It returns an error if the old CA may already be
// distrusted.
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
		// All users of the new certificate must have the old one again before trust in its CA is
		// removed.
		if err := p.undo(ctx, s); err != nil {
			p.state.Blocked = err.Error()
			return errors.Join(p.state.write(p.opts.store, p.set), err)
		}
	}
	return p.end(Aborted)
}

// event reports progress; step may be nil.
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
