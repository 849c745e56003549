// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"example.com/extension-apiserver/pkg/envtest"
)

// TestS21Outage checks that while kube-apiserver sends no response, the server authorizes no
// request whose decision is not cached. The server reports the failure, stays live, and works
// again as soon as kube-apiserver does, without a restart.
func TestS21Outage(t *testing.T) {
	t.Parallel()
	// The cached decision outlives the test.
	_, options, err := audited(t.TempDir(), "10m")
	if err != nil {
		t.Fatal(err)
	}
	e := envtest.New(t, options)
	members := unique("members")
	allow(t, e, ofGroup(members), "", everything, everywhere)
	known := &user.DefaultInfo{Name: unique("known"), Groups: []string{members}}
	get := func(who *user.DefaultInfo, path string) envtest.Response {
		return direct(t, e, who).Do(t, http.MethodGet, path, nil, nil)
	}
	unprivileged := func() *user.DefaultInfo {
		return &user.DefaultInfo{Name: unique("stranger"), Groups: []string{members}}
	}
	const list = "/gadgets"
	// The positive control: before the outage, both have the permission.
	for _, who := range []*user.DefaultInfo{known, unprivileged()} {
		if got := get(who, "/metrics"); got.Status != http.StatusOK {
			t.Fatalf("metrics with the permission: %s, want 200", got)
		}
		if got := get(who, current+list); got.Status != http.StatusOK {
			t.Fatalf("list with the permission: %s, want 200", got)
		}
	}
	t.Run("silent", func(t *testing.T) {
		pause(t, e, syscall.SIGSTOP)
		defer pause(t, e, syscall.SIGCONT)
		refuseAll(t, e, unprivileged)
		if got := get(known, current+list); got.Status != http.StatusOK {
			t.Errorf("a request with a cached decision: %s, want 200", got)
		}
		// TestS13NoResponse checks that /readyz reports it too, a little later: here
		// kube-controller-manager would not outlive the wait.
		if metrics := get(known, "/metrics"); !strings.Contains(string(metrics.Body),
			`apiserver_delegated_authz_request_total{code="<error>"}`) {
			t.Errorf("metrics: %s; want checks that failed among them", metrics)
		}
		if got := get(known, "/livez"); got.Status != http.StatusOK {
			t.Errorf("livez: %s, want 200: to restart the server would mend nothing", got)
		}
	})
	recovered(t, e, unprivileged)
	t.Run("restarted", func(t *testing.T) {
		if err := e.RestartKubeAPIServer(t.Context(), e.KubeAPIServers[0]); err != nil {
			t.Fatal(err)
		}
		recovered(t, e, unprivileged)
	})
}

// refuseAll concurrently sends requests of different users and verbs, and fails if any is not
// rejected.
func refuseAll(t *testing.T, e *envtest.Environment, unprivileged func() *user.DefaultInfo) {
	t.Helper()
	requests := []struct{ method, path string }{
		{"GET", current + "/gadgets"}, {"GET", current + "/gadgets?watch=1&timeoutSeconds=1"},
		{"GET", current + "/widgets"}, {"POST", current + reviews},
		{"DELETE", current + "/gadgets"}, {"GET", "/metrics"}, {"GET", "/openapi/v2"}, {"GET", current},
	}
	const times = 5
	results := make([]envtest.Response, times*len(requests))
	var all sync.WaitGroup
	for i := range results {
		server, request := direct(t, e, unprivileged()), requests[i%len(requests)]
		all.Go(func() { results[i] = server.Do(t, request.method, request.path, nil, reviewJSON) })
	}
	all.Wait()
	in := 0
	for i, got := range results {
		if got.Status == http.StatusInternalServerError {
			continue
		}
		if got.Status < 300 {
			in++
		}
		t.Errorf("%s %s: %s, want 500", requests[i%len(requests)].method, requests[i%len(requests)].path, got)
	}
	if in > 0 {
		t.Errorf("%d of %d requests were allowed without a decision, want 0", in, len(results))
	}
}

// recovered waits until the server is ready, and authorizes users that it has not seen before.
func recovered(t *testing.T, e *envtest.Environment, unprivileged func() *user.DefaultInfo) {
	t.Helper()
	e.Eventually(t, "requests to be authorized again", envtest.WaitTimeout, func(context.Context) error {
		for _, path := range []string{current + "/gadgets", "/readyz"} {
			if got := direct(t, e, unprivileged()).Do(t, http.MethodGet, path, nil, nil); got.Status != http.StatusOK {
				return fmt.Errorf("GET %s: %s", path, got)
			}
		}
		return nil
	})
	e.Eventually(t, "requests through kube-apiserver", envtest.WaitTimeout, func(context.Context) error {
		if got := through(t, e, unprivileged()).Do(t, http.MethodGet, current+"/gadgets", nil,
			nil); got.Status != http.StatusOK {
			return fmt.Errorf("list: %s", got)
		}
		return nil
	})
}

// pause stops kube-apiserver (SIGSTOP), and returns when none of its threads runs; or it continues
// kube-apiserver (SIGCONT).
func pause(t *testing.T, e *envtest.Environment, signal syscall.Signal) {
	t.Helper()
	pid := kubeAPIServer(t, e)
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	if signal != syscall.SIGSTOP {
		return
	}
	e.Eventually(t, "kube-apiserver to be stopped", envtest.WaitTimeout, func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			status, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			if !strings.Contains(string(status), "\nState:\tT") {
				return fmt.Errorf("%s: not stopped", thread)
			}
		}
		return nil
	})
}

// kubeAPIServer returns the PID: a child of this process with the directory of the environment in
// its arguments.
func kubeAPIServer(t *testing.T, e *envtest.Environment) int {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, file := range commands {
		command, err := os.ReadFile(file)
		name, _, _ := bytes.Cut(command, []byte{0})
		if err != nil || filepath.Base(string(name)) != "kube-apiserver" ||
			!bytes.Contains(command, []byte(e.Dir+"/")) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	if len(found) != 1 {
		t.Fatalf("found %d kube-apiservers of this environment, want 1", len(found))
	}
	return found[0]
}
