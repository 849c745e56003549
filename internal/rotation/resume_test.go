// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// runTo kills a rotation at an event.
func (f *fakeCluster) runTo(rotation, step string, event EventType) {
	f.t.Helper()
	opts := f.options(rotation)
	opts.Progress = func(e Event) {
		if e.Step == step && e.Type == event {
			panic(killed{})
		}
	}
	defer func() {
		if _, ok := recover().(killed); !ok {
			f.t.Fatalf("there was no event %s of step %s", event, step)
		}
	}()
	_, err := Run(f.t.Context(), opts)
	f.t.Fatalf("not killed: %v", err)
}

// TestHoldStartsOver: another run does not repeat an observed step, but its hold starts over,
// because nothing was checked meanwhile.
func TestHoldStartsOver(t *testing.T) {
	f := newFake(t)
	f.runTo(ServingCA, "trust", EventHolding)
	version, observed := f.version, f.now
	f.now = f.now.Add(40 * time.Minute)
	opts := f.options(ServingCA)
	opts.Progress = func(e Event) {
		if e.Step == "trust" && e.Type == EventFinished &&
			(e.Time.Sub(observed) != 40*time.Minute+f.hold || f.version != version) {
			t.Errorf("held until %s after it was observed, want 40m and the hold; %d more writes, want 0",
				e.Time.Sub(observed), f.version-version)
		}
	}
	if _, err := Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
}

// TestStepRecordedFirst: each step is recorded before it changes files.
func TestStepRecordedFirst(t *testing.T) {
	for _, rotation := range Rotations() {
		plan := Plan(rotation)
		for i, s := range plan {
			f := newFake(t)
			f.runTo(rotation, s.Name, EventStarted)
			if state := f.state(); state == nil || len(state.Steps) != i+1 || state.Steps[i].Name != s.Name ||
				state.Steps[i].ObservedAt != nil {
				t.Errorf("%s at the beginning of %s: the record is %s", rotation, s.Name, f.stateText())
			}
		}
	}
}

// TestAbortContinues: Renew, as in the next daily job, continues an interrupted abort instead of
// the rotation.
func TestAbortContinues(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.runTo(ServingCA, "switch", EventObserved)
	opts := f.options(ServingCA)
	opts.Wait = func(context.Context, time.Duration) error { return errors.New("interrupted") }
	if _, err := Abort(t.Context(), opts); err == nil || !f.state().Aborting {
		t.Fatalf("got %v, want an abort that is under way: %s", err, f.stateText())
	}
	began := f.now
	report, err := Renew(t.Context(), f.options(""))
	if err != nil || !strings.Contains(report.Items[0].Reason, "completed an interrupted abort") {
		t.Fatalf("got %+v, %v", report, err)
	}
	f.checkAborted(b)
	if took := f.now.Sub(began); took < 2*f.hold { // of the switch and the trust steps
		t.Errorf("it took %s, want each of the two steps observed for %s", took, f.hold)
	}
}

// TestRunAfterAbort: a rotation that was killed at any point of an abort can continue to its
// end.
func TestRunAfterAbort(t *testing.T) {
	for _, rotation := range []string{ServingCA, FrontProxyCA} {
		for cut := 0; ; cut++ {
			f := newFake(t)
			b := f.before()
			step := "switch"
			f.runTo(rotation, step, EventStarted)
			f.left = 75 * cut
			if _, ended := f.runUntilKilled(Abort, rotation); ended {
				break
			}
			f.left = -1
			if s := f.state(); !s.Unfinished() {
				break
			}
			if _, err := Run(t.Context(), f.options(rotation)); err != nil {
				t.Fatalf("%s, cut %d: %v: %s", rotation, cut, err, f.stateText())
			}
			f.checkEnd(b, rotation)
		}
	}
}

// TestAbortWaits: the new CA stays trusted until every endpoint serves the old certificate
// again.
func TestAbortWaits(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.runTo(ServingCA, "switch", EventObserved)
	f.stuckLeaf = f.cert("serving")
	_, err := Abort(t.Context(), f.options(ServingCA))
	if _, ok := errors.AsType[*BlockedError](err); !ok {
		t.Errorf("got %v, want a BlockedError", err)
	}
	f.mustRespond()
	f.stuckLeaf = nil
	if _, err := Abort(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkAborted(b)
}
