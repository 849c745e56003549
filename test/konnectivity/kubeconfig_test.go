// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/kubeconfig"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestServerKubeconfig checks that the server's kubeconfig of docs/konnectivity/install.md reaches
// a kube-apiserver whose certificate has kubeadm's names. Its certificate has the same lifetime as
// the other certificates. After its expiry, the documented renewal lets agents connect again.
func TestServerKubeconfig(t *testing.T) {
	t.Parallel()
	e := start(t, envtest.Options{Network: envtest.EndpointRouting, Unregistered: true,
		Tunnels: []envtest.Tunnel{{Mode: envtest.GRPCOverUDS}}})
	flags := documentedKubeconfig(t, e)
	if got, want := days(t, flags["lifetime"]), 365; got != want {
		t.Errorf("docs/konnectivity/install.md creates a kubeconfig for %d days, want %d as konnectivity's other leaves", got,
			want)
	}
	for _, tc := range []struct {
		name, server string
		refused      string // in the server's log; empty if the server admits an agent
	}{
		{"as documented", flags["server"], ""},
		{"loopback, which kubeadm's certificate does not contain", "https://127.0.0.1:6443", "not 127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := serveWith(t, e, issueKubeconfig(t, e, tc.server, 0))
			if tc.refused != "" {
				agentRefused(t, e, seen, tc.refused)
				return
			}
			agentAdmitted(t, e)
		})
	}
	t.Run("renewed after its end", func(t *testing.T) {
		const lifetime = time.Minute
		issued := issueKubeconfig(t, e, flags["server"], lifetime)
		end := time.Now().Add(lifetime)
		serveWith(t, e, issued)
		agentAdmitted(t, e)
		e.Eventually(t, "the certificate to expire", 2*lifetime, func(context.Context) error {
			if left := time.Until(end); left > 0 {
				return fmt.Errorf("it has %s left", left)
			}
			return nil
		})
		log, err := os.ReadFile(only(e).ProxyServer.Log())
		if err != nil {
			t.Fatal(err)
		}
		agentRefused(t, e, len(log), "Client authentication failed")
		// As documented: the same command, and a restart, because the certificate has already
		// expired.
		if _, err := kubeconfig.Write(t.Context(), issued); err != nil {
			t.Fatal(err)
		}
		if err := only(e).ProxyServer.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := only(e).ProxyServer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		agentAdmitted(t, e)
	})
}

// documentedKubeconfig returns the flags of the command for a static pod in
// docs/konnectivity/install.md, as a shell on a control plane node reads them.
func documentedKubeconfig(t *testing.T, e *envtest.Environment) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "konnectivity", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Install the server as a static pod\n")
	command := regexp.MustCompile(`(?m)^certgen konnectivity kubeconfig ((?:.*\\\n)*.*)$`).FindStringSubmatch(section)
	if command == nil {
		t.Fatal("docs/konnectivity/install.md does not make a kubeconfig for the static pod")
	}
	admin, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	script := "printf '%s\\n' " + strings.ReplaceAll(command[1], "/etc/kubernetes/admin.conf", admin)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "k=/etc/kubernetes/konnectivity",
		"PATH="+filepath.Dir(e.Binary("kubectl"))+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	words := strings.Split(strings.TrimSpace(string(out)), "\n")
	flags := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		flags[strings.TrimPrefix(words[i], "--")] = words[i+1]
	}
	return flags
}

// days parses a lifetime such as 365d; the default is certgen's.
func days(t *testing.T, lifetime string) int {
	t.Helper()
	if lifetime == "" {
		return int(certs.LeafLifetime / (24 * time.Hour))
	}
	n, err := strconv.Atoi(strings.TrimSuffix(lifetime, "d"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// issueKubeconfig does the same as certgen with the flags.
func issueKubeconfig(t *testing.T, e *envtest.Environment, server string, lifetime time.Duration) kubeconfig.Options {
	t.Helper()
	opts := kubeconfig.Options{
		Client: certs.ClientOptions{User: "system:konnectivity-server", Lifetime: lifetime},
		CA:     filepath.Join(e.PKI(), "client-ca"), Server: server,
		ServerCAFile: filepath.Join(e.PKI(), "control-plane-ca", certs.CertFile),
		Out:          filepath.Join(t.TempDir(), "konnectivity-server.kubeconfig"),
	}
	if _, err := kubeconfig.Write(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	return opts
}

// serveWith restarts the konnectivity server with a kubeconfig, and returns the length of its log
// before.
func serveWith(t *testing.T, e *envtest.Environment, opts kubeconfig.Options) int {
	t.Helper()
	log, err := os.ReadFile(only(e).ProxyServer.Log())
	if err != nil {
		t.Fatal(err)
	}
	setTunnel(t, e, envtest.Tunnel{Mode: envtest.GRPCOverUDS, ServerArgs: []string{"--kubeconfig=" + opts.Out}})
	return len(log)
}

// newAgent starts an agent that is killed at the end of the test.
func newAgent(t *testing.T, e *envtest.Environment) *envtest.KonnectivityProcess {
	t.Helper()
	a, err := e.NewAgent(t.Context(), only(e))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Kill)
	return a
}

func agentAdmitted(t *testing.T, e *envtest.Environment) {
	t.Helper()
	e.Eventually(t, "the agent to have its server", envtest.WaitTimeout, newAgent(t, e).Ready)
}

// agentRefused starts an agent that must not get a server. The reason must be in the server's log
// after the offset seen.
func agentRefused(t *testing.T, e *envtest.Environment, seen int, reason string) {
	t.Helper()
	a := newAgent(t, e)
	e.Eventually(t, "the server to refuse the agent", envtest.WaitTimeout, func(context.Context) error {
		log, err := os.ReadFile(only(e).ProxyServer.Log())
		if err == nil && !strings.Contains(string(log[seen:]), reason) {
			err = fmt.Errorf("%s does not say %q", only(e).ProxyServer.Log(), reason)
		}
		return err
	})
	if err := a.Ready(t.Context()); err == nil {
		t.Error("the agent is ready, want that it has no server")
	}
}
