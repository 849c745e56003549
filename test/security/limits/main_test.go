// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

var (
	shared *envtest.Environment
	// container is the control group of the server.
	container *cgroup
)

// TestMain runs the server with the memory limit of the manifests. With ATTACK set, this process
// is an attacker.
func TestMain(m *testing.M) {
	if name := os.Getenv("ATTACK"); name != "" {
		if err := attack(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code, err := inContainer(func(server string) int {
		return envtest.Main(m, envtest.Options{Server: server, ServerEnv: []string{memorySetting}}, &shared)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// inContainer runs the tests with a command that starts the server in a control group.
func inContainer(run func(server string) int) (code int, err error) {
	program, err := envtest.Build(context.Background(), "example.com/extension-apiserver/cmd/extension-apiserver")
	if err != nil {
		return 0, err
	}
	if container, err = newCgroup(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, container.remove()) }()
	server, err := container.command(program)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(filepath.Dir(server))
	return run(server), nil
}

// memorySetting matches manifests/base/deployment.yaml.
const memorySetting = "GOMEMLIMIT=384MiB"

// dialTLS connects to the server's own port with the TLS configuration of a client.
func dialTLS(ctx context.Context, change func(*tls.Config)) (*tls.Conn, error) {
	return dialTLSFrom(ctx, nil, change)
}

func dialTLSFrom(ctx context.Context, dialer *net.Dialer, change func(*tls.Config)) (*tls.Conn, error) {
	config, err := rest.TLSConfigFor(shared.Servers[0].Config(shared))
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(config)
	}
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp",
		strings.TrimPrefix(shared.Servers[0].URL, "https://"))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

func mustDial(t *testing.T, change func(*tls.Config)) *tls.Conn {
	t.Helper()
	conn, err := dialTLS(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// healthy is the positive control: the same server still serves other clients. After an attack, a
// check may fail until the machine has time for it.
func healthy(t *testing.T) {
	t.Helper()
	shared.Eventually(t, "health", envtest.WaitTimeout, tryHealth)
}

func tryHealth(ctx context.Context) error {
	client, err := shared.Servers[0].Client(shared)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, shared.Servers[0].URL+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s, want 200", resp.Status)
	}
	return nil
}

// peaks starts a measurement of the server's memory. The returned function fails the test if the
// peak since then exceeds the initial memory by more than bound MiB.
func peaks(t *testing.T, bound int) (check func()) {
	t.Helper()
	server := shared.Servers[0]
	if err := server.ResetVmHWM(); err != nil {
		t.Fatal(err)
	}
	memory := func() int {
		t.Helper()
		kib, err := server.VmHWM()
		if err != nil {
			t.Fatal(err)
		}
		return kib >> 10
	}
	before := memory()
	return func() {
		t.Helper()
		after := memory()
		t.Logf("VmHWM: %d MiB, %d MiB at the beginning", after, before)
		if after > before+bound {
			t.Errorf("VmHWM is %d MiB, want at most %d MiB more than the %d MiB at the beginning", after, bound, before)
		}
	}
}
