// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"example.com/extension-apiserver/internal/certs"
)

// runPart runs a rotation until it is killed when a step finishes, or until it stops by itself.
func (f *fakeCluster) runPart(opts Options, do func(context.Context, Options) (*State, error),
	step string) (err error) {
	opts.Progress = func(e Event) {
		f.mustRespond()
		if e.Step == step && e.Type == EventFinished {
			panic(killed{})
		}
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	_, err = do(f.t.Context(), opts)
	return err
}

// TestTwoOperators: requests of users succeed if a second operator rotates from a copy of the
// directory, at any combination of steps. The operator whose directory the servers read
// finishes; the other one stops in a safe state.
func TestTwoOperators(t *testing.T) {
	for _, rotation := range Rotations() {
		plan := Plan(rotation)
		for _, first := range plan {
			for _, second := range plan {
				t.Run(fmt.Sprintf("%s/%s then %s", rotation, first.Name, second.Name), func(t *testing.T) {
					t.Parallel()
					f := newFake(t)
					b := f.before()
					copied := f.options(rotation)
					copied.Dir = t.TempDir()
					if err := os.CopyFS(copied.Dir, os.DirFS(f.dir)); err != nil {
						t.Fatal(err)
					}
					_ = f.runPart(f.options(rotation), Run, first.Name)
					_ = f.runPart(copied, Run, second.Name) // refused, blocked or killed
					if f.state().Unfinished() {
						if err := f.runPart(f.options(rotation), Run, ""); err != nil {
							t.Fatalf("the first one could not continue: %v", err)
						}
					}
					err := f.runPart(copied, Abort, "")
					if _, blocked := errors.AsType[*BlockedError](err); blocked {
						// Its certificate will never be served. Its CA stays trusted until a
						// person removes it.
						if s := f.state(); s.Outcome != Done {
							t.Errorf("the first one is not done: %s", f.stateText())
						}
						f.mustRespond()
						return
					}
					if _, refused := errors.AsType[*certs.RefusedError](err); err != nil && !refused {
						t.Errorf("the second one could not be aborted: %v", err)
					}
					f.checkEnd(b, rotation)
				})
			}
		}
	}
}
