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

// machine runs the steps of one rotation and records them.
type machine struct {
	opts  Options
	steps []step
	state *State
}

// run takes the rotation to its end from wherever the record says that it is.
func (m *machine) run(ctx context.Context) error {
	if last := len(m.state.Steps) - 1; m.state.Aborting && last >= 0 {
		// It may be half taken back. What the first step made may be gone, and nobody uses it.
		m.state.Steps[last].ObservedAt, m.state.Steps[last].FinishedAt = nil, nil
		if last == 0 {
			m.state.Steps = nil
		}
	}
	m.state.Blocked, m.state.Aborting = "", false
	for i := range m.steps {
		if r := m.record(&m.steps[i]); r != nil && r.FinishedAt != nil {
			continue
		}
		if err := m.runStep(ctx, i); err != nil {
			return err
		}
	}
	return m.end(Done)
}

func (m *machine) end(outcome Outcome) error {
	now := m.opts.Now()
	m.state.Outcome, m.state.EndedAt = outcome, &now
	if err := m.state.write(m.opts.Store); err != nil {
		return err
	}
	m.event(nil, EventEnded, string(outcome))
	return nil
}

func (m *machine) record(s *step) *StepState {
	i := slices.IndexFunc(m.state.Steps, func(r StepState) bool { return r.Name == s.name })
	if i < 0 {
		return nil
	}
	return &m.state.Steps[i]
}

// runStep does a step, waits until it is observed, and holds. A step that was observed before is not done again.
func (m *machine) runStep(ctx context.Context, i int) error {
	s := &m.steps[i]
	r := m.record(s)
	if r == nil || r.ObservedAt == nil {
		if err := m.ready(ctx, i); err != nil {
			return err
		}
	}
	if r == nil {
		m.state.Steps = append(m.state.Steps, StepState{Name: s.name, StartedAt: m.opts.Now()})
		r = m.record(s)
		if err := m.state.write(m.opts.Store); err != nil {
			return err
		}
		m.event(s, EventStarted, s.about)
	} else {
		m.event(s, EventResumed, s.about)
	}
	if r.ObservedAt == nil {
		if err := m.await(ctx, s, s.do, restoring(s.restore, s.observed)); err != nil {
			return m.block(ctx, i, err)
		}
		if err := m.mark(&r.ObservedAt, s, EventObserved); err != nil {
			return err
		}
	}
	if err := m.hold(ctx, s, restoring(s.restore, s.observed)); err != nil {
		if _, ok := errors.AsType[*BlockedError](err); ok {
			r.ObservedAt = nil // it is done again
		}
		return m.block(ctx, i, err)
	}
	return m.mark(&r.FinishedAt, s, EventFinished)
}

// mark records when something happened to a step.
func (m *machine) mark(at **time.Time, s *step, what EventType) error {
	now := m.opts.Now()
	*at = &now
	if err := m.state.write(m.opts.Store); err != nil {
		return err
	}
	m.event(s, what, "")
	return nil
}

// ready returns nil when what a step needs is seen now: days may have passed since it was. Before the step has begun, the one before it is
// done again by the next run.
func (m *machine) ready(ctx context.Context, i int) error {
	s := &m.steps[i]
	if m.record(s) != nil {
		needs := restoring(s.restore, s.needs)
		if s.kind == Distrust {
			needs = stopping(needs) // what is distrusted already is trusted again at once
		}
		return m.block(ctx, i, m.await(ctx, s, nil, needs))
	}
	needs := s.needs
	if i > 0 && m.steps[i-1].hold {
		needs = restoring(m.steps[i-1].restore, m.steps[i-1].observed)
	}
	err := m.await(ctx, s, nil, needs)
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		before := m.record(&m.steps[i-1])
		before.ObservedAt, before.FinishedAt = nil, nil
		return m.block(ctx, i-1, blocked)
	}
	return err
}

// restoring calls restore whenever seen reports something missing, and still returns what was missing.
func restoring(restore, seen func(context.Context) error) func(context.Context) error {
	if restore == nil || seen == nil {
		return seen
	}
	return func(ctx context.Context) error {
		missing := seen(ctx)
		if missing == nil {
			return nil
		}
		if err := restore(ctx); err != nil {
			return fmt.Errorf("%w; to put it back failed: %w", missing, err)
		}
		return missing
	}
}

// stopping takes what is not seen for a reason to stop.
func stopping(seen func(context.Context) error) func(context.Context) error {
	if seen == nil {
		return nil
	}
	return func(ctx context.Context) error {
		if err := seen(ctx); err != nil {
			return &stopError{err}
		}
		return nil
	}
}

// hold looks for as long as Options.Hold whether what was observed stays so. What is no longer seen must be seen again within the timeout, and
// the hold begins anew then, as it does in a run that takes the step up: what nobody looked at does not count. What is lost again and again is
// kept so by somebody else, and blocks.
func (m *machine) hold(ctx context.Context, s *step, seen func(context.Context) error) error {
	if !s.hold {
		return nil
	}
	m.event(s, EventHolding, "for "+m.opts.Hold.Round(time.Second).String())
	began, losses := m.opts.Now(), 0
	for since := began; ; {
		if seen != nil {
			if lost := seen(ctx); lost != nil {
				if losses++; losses > maxLosses {
					return &BlockedError{Rotation: m.state.Rotation, Step: s.name, Waited: m.opts.Now().Sub(began), Missing: fmt.Errorf("lost %d times while it had to last: %w", losses, lost)}
				}
				if err := m.await(ctx, s, nil, seen); err != nil {
					return err
				}
				since = m.opts.Now()
			}
		}
		left := since.Add(m.opts.Hold).Sub(m.opts.Now())
		if left <= 0 {
			return nil
		}
		if err := m.opts.Wait(ctx, min(left, max(m.opts.Poll, m.opts.Hold/looks))); err != nil {
			return m.interrupted(s, err)
		}
	}
}

// maxLosses lets endpoints be replaced one after the other while a step holds.
const maxLosses = 20

// looks is how often a hold looks, at most: each look asks every endpoint and every kube-apiserver.
const looks = 60

func (m *machine) interrupted(s *step, err error) error {
	return fmt.Errorf("rotate %s: step %s: %w; run it again to go on", m.state.Rotation, s.name, err)
}

// await does something, if there is something to do, and asks until it is seen everywhere. *BlockedError tells that the time is over, or
// that a reason came up that waiting does not mend.
func (m *machine) await(ctx context.Context, s *step, do, seen func(context.Context) error) error {
	began, said := m.opts.Now(), ""
	for {
		var missing error
		if ctx.Err() != nil { // such as for a Lease that was lost: somebody else may write now
			return m.interrupted(s, context.Cause(ctx))
		}
		if do != nil {
			if missing = do(ctx); missing == nil {
				do = nil
			} else {
				missing = &stopError{missing}
			}
		}
		if missing == nil && seen != nil {
			missing = seen(ctx)
		}
		waited := m.opts.Now().Sub(began)
		switch {
		case missing == nil:
			return nil
		case ctx.Err() != nil:
			return m.interrupted(s, context.Cause(ctx))
		case isBroken(missing) || waited >= m.opts.Timeout:
			return &BlockedError{Rotation: m.state.Rotation, Step: s.name, Waited: waited, Missing: missing}
		case missing.Error() != said:
			said = missing.Error()
			m.event(s, EventWaiting, said)
		}
		if err := m.opts.Wait(ctx, m.opts.Poll); err != nil {
			return m.interrupted(s, err)
		}
	}
}

// block records why a step stopped and leaves a safe state: after a step of distrust the old CA is trusted again, all
// steps of distrust are open, and the rotation can be aborted.
func (m *machine) block(ctx context.Context, i int, err error) error {
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok {
		return err
	}
	s := &m.steps[i]
	for ; i >= 0 && m.steps[i].kind == Distrust; i-- {
		if err := m.undo(ctx, &m.steps[i], false); err != nil {
			return errors.Join(err, blocked)
		}
		blocked.TookBack = true
	}
	return m.stop(s, blocked)
}

// stop records why the rotation does not go on.
func (m *machine) stop(s *step, blocked *BlockedError) error {
	m.state.Blocked = blocked.Error()
	m.event(s, EventBlocked, blocked.Missing.Error())
	return errors.Join(m.state.write(m.opts.Store), blocked)
}

// undo takes one step back, and takes it out of the record when that is seen, and was for as long as the hold if it has to.
func (m *machine) undo(ctx context.Context, s *step, hold bool) error {
	if s.undo != nil {
		if err := m.await(ctx, s, s.undo, s.undone); err != nil {
			return err
		}
	}
	if hold {
		if err := m.hold(ctx, s, s.undone); err != nil {
			return err
		}
	}
	m.state.Steps = slices.DeleteFunc(m.state.Steps, func(r StepState) bool { return r.Name == s.name })
	m.event(s, EventUndone, "")
	return m.state.write(m.opts.Store)
}

// abort takes back all steps, the last first, unless the old CA may be distrusted already.
func (m *machine) abort(ctx context.Context) error {
	for i := range m.steps {
		if s := &m.steps[i]; m.record(s) != nil && (s.kind == Distrust || s.final) {
			return &certs.RefusedError{Path: m.opts.Store.Path(StateSet, StateFile), Reason: fmt.Sprintf(
				"expected a rotation before its step %s, found that this step has begun, after which there is no way back; run the rotation to its end", s.name)}
		}
	}
	m.state.Blocked, m.state.Aborting = "", true
	if err := m.state.write(m.opts.Store); err != nil {
		return err
	}
	for i := range slices.Backward(m.steps) {
		s := &m.steps[i]
		if m.record(s) == nil {
			continue
		}
		// Whatever uses the new certificate must have the old one again before its CA is trusted no more.
		if err := m.undo(ctx, s, true); err != nil {
			if blocked, ok := errors.AsType[*BlockedError](err); ok {
				blocked.Aborting = true
			}
			m.state.Blocked = err.Error()
			return errors.Join(m.state.write(m.opts.Store), err)
		}
	}
	return m.end(Aborted)
}

// event tells what happened; step may be nil.
func (m *machine) event(s *step, what EventType, message string) {
	if m.opts.Progress == nil {
		return
	}
	now := m.opts.Now()
	e := Event{Kind: eventKind, Time: now, Rotation: m.state.Rotation, Type: what, Message: message}
	since := m.state.StartedAt
	if s != nil {
		e.Step, e.StepKind = s.name, s.kind
		if r := m.record(s); r != nil {
			since = r.StartedAt
		}
	}
	e.ElapsedSeconds = now.Sub(since).Seconds()
	m.opts.Progress(e)
}
