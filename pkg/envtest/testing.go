// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// New starts an environment for a test and stops it at its end. When the test fails, or a process died, the ends of the
// logs are printed.
func New(t testing.TB, options Options) *Environment {
	t.Helper()
	// Not t.Context: it ends before the cleanup, and the processes shall be stopped in order.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	e, err := Start(ctx, options)
	if err != nil {
		cancel()
		t.Fatalf("start environment: %v", err)
	}
	t.Cleanup(func() {
		defer cancel()
		if err := e.Failure(); err != nil {
			t.Errorf("while the test ran: %v", err)
		}
		if t.Failed() {
			for _, log := range e.logs() {
				t.Logf("the end of %s:\n%s", filepath.Base(log), tail(log))
			}
		}
		if err := e.Stop(); err != nil {
			t.Errorf("stop environment: %v", err)
		}
	})
	return e
}

// Main is the TestMain of a package whose tests share one environment: it starts it, puts it into shared, runs the tests
// and stops it. It returns the exit code.
func Main(m *testing.M, options Options, shared **Environment) int {
	code, err := runMain(m, options, shared)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		return max(code, 1)
	}
	return code
}

func runMain(m *testing.M, options Options, shared **Environment) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e, err := Start(ctx, options)
	if err != nil {
		return 1, fmt.Errorf("start environment: %w", err)
	}
	*shared = e
	code = m.Run()
	err = e.Failure()
	if code != 0 || err != nil {
		for _, log := range e.logs() {
			fmt.Fprintf(os.Stderr, "the end of %s:\n%s\n", filepath.Base(log), tail(log))
		}
	}
	return code, errors.Join(err, e.Stop())
}

func (e *Environment) logs() []string {
	logs, _ := filepath.Glob(filepath.Join(e.processes.logDir, "*.log"))
	return logs
}

// Eventually waits until check returns nil, and fails the test with the last error after timeout, or at once when a
// process of the environment died.
func (e *Environment) Eventually(t testing.TB, what string, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	if err := eventually(e.ctx, what, timeout, check); err != nil {
		t.Fatal(err)
	}
}
