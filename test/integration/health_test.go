// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"github.com/google/go-cmp/cmp"
)

var healthLine = regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`)

// checksOf returns the names of the checks of an endpoint. It fails the test unless all of them
// pass.
func checksOf(t *testing.T, server envtest.Endpoint, path string) []string {
	t.Helper()
	body := string(server.Get(t, path+"?verbose", nil).Body)
	var names []string
	for _, match := range healthLine.FindAllStringSubmatch(body, -1) {
		names = append(names, match[1])
	}
	if len(names)+1 != strings.Count(body, "\n") || !strings.HasSuffix(body, path[1:]+" check passed\n") {
		t.Fatalf("%s?verbose: want nothing but checks that passed, got:\n%s", path, body)
	}
	return names
}

// TestHealthChecks checks that each check of an endpoint can be requested by itself, and
// excluded. A server is ready if it can do its work. Missing cluster dependencies are no reason
// for a restart, so /livez does not check them.
func TestHealthChecks(t *testing.T) {
	server := direct(t, shared)
	always := []string{"ping", "log", "etcd", "poststarthook/generic-apiserver-start-informers",
		"poststarthook/priority-and-fairness-config-consumer"}
	onlyReady := []string{"etcd-readiness", "etcd-alarms", "front-proxy-trust", "permissions",
		"informer-sync", "shutdown"}
	for path, wanted := range map[string]struct{ with, without []string }{
		"/readyz":  {slices.Concat(always, onlyReady), nil},
		"/livez":   {always, onlyReady},
		"/healthz": {always, onlyReady},
	} {
		names := checksOf(t, server, path)
		for _, name := range wanted.with {
			if !slices.Contains(names, name) {
				t.Errorf("%s has the checks %v, want %s among them", path, names, name)
			}
		}
		for _, name := range wanted.without {
			if slices.Contains(names, name) {
				t.Errorf("%s has the check %s, want it in /readyz only", path, name)
			}
		}
		if got := string(server.Get(t, path, nil).Body); got != "ok" {
			t.Errorf("%s: %q, want ok", path, got)
		}
		var excluded []string
		for _, name := range names {
			if got := string(server.Get(t, path+"/"+name, nil).Body); got != "ok" {
				t.Errorf("%s/%s: %q, want ok", path, name, got)
			}
			excluded = append(excluded, "[+]"+name+" excluded: ok")
		}
		query := "?verbose&exclude=" + strings.Join(names, "&exclude=") + "&exclude=nothing"
		want := append(excluded, `warn: some health checks cannot be excluded: no matches for "nothing"`,
			path[1:]+" check passed", "")
		if diff := cmp.Diff(want, strings.Split(string(server.Get(t, path+query, nil).Body), "\n")); diff != "" {
			t.Errorf("%s with all excluded (-want +got):\n%s", path, diff)
		}
		if a := server.Do(t, http.MethodGet, path+"/nothing", nil, nil); a.Status != http.StatusNotFound {
			t.Errorf("%s/nothing: %d, want 404", path, a.Status)
		}
	}
}

// TestHealthAccess checks that only users who may monitor the cluster (group system:monitoring)
// can read single checks and metrics.
func TestHealthAccess(t *testing.T) {
	for user, groups := range map[string][]string{"monitor": {"system:monitoring"}, "nobody-special": nil} {
		config, err := shared.Config(user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		server := envtest.NewEndpoint(t, shared.Servers[0].ConfigAs(shared, config))
		for path, allowed := range map[string]bool{
			"/readyz": true, "/livez?verbose": true, "/healthz": true,
			"/readyz/etcd": groups != nil, "/livez/ping": groups != nil, "/metrics": groups != nil,
			"/readyz/nothing": groups != nil,
		} {
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[allowed]
			if allowed && strings.HasSuffix(path, "/nothing") {
				want = http.StatusNotFound
			}
			if a := server.Do(t, http.MethodGet, path, nil, nil); a.Status != want {
				t.Errorf("GET %s as %s: %d %.200s, want %d", path, user, a.Status, a.Body, want)
			}
		}
	}
}

// TestHealthWithoutEtcd checks that the server is not ready while etcd does not respond, reports
// the reason, and then recovers by itself. A probe that must not restart it for that can exclude
// the check.
func TestHealthWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd, url := startEtcd(t)
	s := serve(t, "--kubeconfig="+sharedKubeconfig(t), "--etcd-servers="+url, "--etcd-healthcheck-timeout=1s",
		"--etcd-readycheck-timeout=1s")
	server := direct(t, shared)
	server.URL = s.url
	shared.Eventually(t, "the server to be ready", envtest.WaitTimeout, existing(server, "/readyz"))

	if err := etcd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the server to notice that etcd is frozen", envtest.WaitTimeout, func(context.Context) error {
		if a := server.Do(t, http.MethodGet, "/readyz", nil, nil); a.Status != http.StatusInternalServerError ||
			!strings.Contains(string(a.Body),
				"[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n") {
			return fmt.Errorf("/readyz: %d %s, want 500 for the checks etcd and etcd-readiness", a.Status, a.Body)
		}
		return nil
	})
	if a := server.Do(t, http.MethodGet, "/readyz/etcd", nil, nil); a.Status != http.StatusInternalServerError ||
		!strings.Contains(string(a.Body), "error getting data from etcd: ") {
		t.Errorf("/readyz/etcd: %d %s, want 500 with the reason", a.Status, a.Body)
	}
	server.Get(t, "/livez?exclude=etcd", nil)
	server.Get(t, "/readyz?exclude=etcd&exclude=etcd-readiness", nil)

	if err := etcd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the server to be ready again", envtest.WaitTimeout, existing(server, "/readyz"))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startEtcd starts an etcd that only this test uses, so that it can freeze it.
func startEtcd(t *testing.T) (etcd *exec.Cmd, url string) {
	t.Helper()
	url, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	etcd = exec.Command(shared.Binary("etcd"), "--name=test", "--data-dir="+t.TempDir(),
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
		"--log-level=error")
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(etcd.Process.Kill(), etcd.Wait())
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			t.Errorf("end etcd: %v", err)
		}
	})
	return etcd, url
}
