// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// New starts an environment for a test and stops it when the test ends. If the test fails or a
// process has exited, it prints the ends of the logs.
func New(t testing.TB, options Options) *Environment {
	t.Helper()
	// t.Context is not used: it is done before the cleanup, but the processes must be stopped in
	// order.
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

// Main implements TestMain for a package whose tests share one environment. It starts the
// environment, stores it in shared, runs the tests and stops it. It returns the exit code.
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

// Eventually waits until check returns nil. It fails the test with the last error after timeout,
// or at once when a process of the environment exits.
func (e *Environment) Eventually(t testing.TB, what string, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	if err := eventually(e.ctx, what, timeout, check); err != nil {
		t.Fatal(err)
	}
}

// WaitTimeout is the timeout for a condition on a busy machine. Tests continue as soon as the
// condition is true.
const WaitTimeout = time.Minute

// FreePort returns a loopback port for a process of the test. The port is reserved until the
// environment stops: no other environment gets it, and Linux does not use it for outgoing
// connections.
func (e *Environment) FreePort(t testing.TB) string {
	t.Helper()
	port, err := e.ports.take()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// Admin is AdminConfig for tests. An error fails the test.
func (e *Environment) Admin(t testing.TB) *rest.Config {
	t.Helper()
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Client is AdminClient for tests. An error fails the test.
func (e *Environment) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// User creates a user with exactly these permissions and returns its client configuration.
// Permissions that were granted to a user of the same name before also apply.
func (e *Environment) User(t testing.TB, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	if err := e.Grant(t.Context(), name, rules...); err != nil {
		t.Fatal(err)
	}
	config, err := e.Config(name)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// NewNamespace creates a namespace and deletes it at the end of the test.
func (e *Environment) NewNamespace(t testing.TB) string {
	t.Helper()
	namespaces := e.Client(t).CoreV1().Namespaces()
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(context.WithoutCancel(t.Context()), ns.Name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Errorf("delete namespace: %v", err)
		}
	})
	return ns.Name
}
