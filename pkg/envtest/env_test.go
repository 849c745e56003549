// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// asParent makes the test binary the parent of an environment that exits in a way that a test
// cannot survive.
const asParent = "ENV_TEST_PARENT"

func TestMain(m *testing.M) {
	if how := os.Getenv(asParent); how != "" {
		parent(how)
	}
	os.Exit(m.Run())
}

// parent starts an environment, prints its directory, and then panics or waits to be killed.
func parent(how string) {
	e, err := Start(context.Background(), Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(e.Dir)
	if how == "panic" {
		panic("as told")
	}
	select {} // until killed
}

// TestChildProcessesExit: child processes exit when their parent panics or is killed.
func TestChildProcessesExit(t *testing.T) {
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), asParent+"="+how)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			dir := strings.TrimSpace(line)
			if err != nil || dir == "" {
				t.Fatalf("the parent did not print its directory: %q, %v", line, err)
			}
			defer os.RemoveAll(dir)
			if how == "kill" {
				if n := len(processesWith(t, dir)); n < 4 {
					t.Errorf("%d children before the kill, want 4: etcd, kube-apiserver, kube-controller-manager "+
						"and our server", n)
				}
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := eventually(ctx, "the children to end", 10*time.Second, func(context.Context) error {
				if left := processesWith(t, dir); len(left) > 0 {
					return fmt.Errorf("still there: %v", left)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// processesWith returns the programs whose command lines contain the directory.
func processesWith(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), dir+"/") {
			name, _, _ := strings.Cut(string(data), "\x00")
			found = append(found, name)
		}
	}
	return found
}

// TestChildProcessExitReported: the exit of a child process is reported at once, with the end of
// its log.
func TestChildProcessExitReported(t *testing.T) {
	t.Run("at start", func(t *testing.T) {
		began := time.Now()
		_, err := Start(t.Context(), Options{KubeAPIServerArgs: []string{"--no-such-flag"}})
		if err == nil || !strings.Contains(err.Error(), "kube-apiserver exited unexpectedly") ||
			!strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
			t.Errorf("start: %v, want an error that names kube-apiserver and has the end of its log", err)
		}
		if took := time.Since(began); took > startTimeout/2 {
			t.Errorf("noticed after %s, want at once", took)
		}
	})
	t.Run("later", func(t *testing.T) {
		e, err := Start(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.etcd.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-e.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("not noticed within 10 s")
		}
		if err := e.Failure(); err == nil || !strings.Contains(err.Error(),
			"etcd exited unexpectedly (signal: killed)") {
			t.Errorf("failure: %v, want one that names etcd", err)
		}
		// Without its etcd, kube-apiserver does not drain and is killed, which is not an error of
		// this test.
		_ = e.Stop()
	})
}

// TestProcessExitsDuringStart: if a process exits during the start of the environment, the error
// contains the end of its log, and not only the failed step.
func TestProcessExitsDuringStart(t *testing.T) {
	dir, _ := giveBinaries(t)
	ends := "#!/bin/sh\n[ \"$1\" = --version ] && exec echo Kubernetes v" + Minor() +
		".0\necho it lacks a tool >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, controllerManager), []byte(ends), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	e, err := Start(t.Context(), Options{})
	if err == nil {
		t.Fatal("the environment started", e.Stop())
	}
	for _, want := range []string{"kube-controller-manager exited unexpectedly (exit status 3)",
		"it lacks a tool"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestProcessHangsDuringStart: the error for a process that is not ready in time contains the end
// of its log.
func TestProcessHangsDuringStart(t *testing.T) {
	ps := processes{logDir: t.TempDir(), fail: func(error) {}}
	p, err := ps.start(loopbackHost(&ports{}), "part", []string{"/bin/sh", "-c",
		`printf "it waits for a %s\n" tool; exec sleep 600`})
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	if err := eventually(t.Context(), "its words", 10*time.Second, func(context.Context) error {
		if data, err := os.ReadFile(p.log); err != nil || !strings.Contains(string(data), "tool\n") {
			return fmt.Errorf("%s: %w", data, errors.Join(errors.New("not yet"), err))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	err = p.ready(t.Context(), time.Millisecond, func(context.Context) error { return errors.New("not ready") })
	wantError(t, err, "wait for part: timed out after 1ms: not ready; the end of "+p.log, "it waits for a tool")
}

// TestConcurrentEnvironments: concurrent environments use different ports and directories, and a
// directory can be used by only one environment at a time.
func TestConcurrentEnvironments(t *testing.T) {
	var group sync.WaitGroup
	environments := make([]*Environment, 2)
	errs := make([]error, 2)
	for i := range environments {
		group.Go(func() { environments[i], errs[i] = Start(t.Context(), Options{}) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	first := environments[0]
	if first.Servers[0].URL == environments[1].Servers[0].URL {
		t.Errorf("both servers are at %s", first.Servers[0].URL)
	}
	if _, err := Start(t.Context(), Options{Dir: first.Dir}); err == nil ||
		!strings.Contains(err.Error(), "in use by another run") {
		t.Errorf("start on a directory in use: %v, want an error that reports it", err)
	}
	for _, e := range environments {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		if left := processesWith(t, e.Dir); len(left) > 0 {
			t.Errorf("after Stop: %v still run", left)
		}
		if _, err := os.Stat(e.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Stop: directory %s: %v, want none", e.Dir, err)
		}
	}
}

// TestNoSpace: if the disk is full, the error names the directory or contains the log of the
// failed process, and states the required space.
func TestNoSpace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root: run the tests as root")
	}
	for _, size := range []string{"32k", "2m"} { // too small for certificates and for etcd
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		_, err := Start(t.Context(), Options{Dir: dir})
		wantError(t, err, "no space left on device", "the state needs 512 MiB in "+dir)
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=1g"); err != nil {
			t.Fatal(err)
		}
		e, err := Start(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Errorf("with space, after %s: %v", size, err)
			continue
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestOptions: Start rejects invalid options.
func TestOptions(t *testing.T) {
	for name, options := range map[string]Options{
		"two servers on loopback":         {Servers: 2},
		"two kube-apiservers on loopback": {KubeAPIServers: 2},
		"five kube-apiservers":            {KubeAPIServers: 5, Network: EndpointRouting},
		"a tunnel on loopback":            {Tunnels: []Tunnel{{Mode: GRPCOverUDS}}},
		"tunnels for one of two": {Tunnels: []Tunnel{{Mode: GRPCOverUDS}}, KubeAPIServers: 2,
			Network: EndpointRouting},
	} {
		if _, err := Start(t.Context(), options); err == nil {
			t.Errorf("%s: started, want an error", name)
		}
	}
}

// TestOverride: an argument replaces earlier arguments of the same flag. Otherwise a list flag
// would get the values of both.
func TestOverride(t *testing.T) {
	got := override([]string{"program", "--headers=a", "--port=1", "--headers-prefix=b"},
		[]string{"--headers=", "--more", "--headers=c"})
	want := []string{"program", "--port=1", "--headers-prefix=b", "--headers=", "--more", "--headers=c"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestServer: a server that is built from a package, or is a file, serves its API to a user with
// the granted permissions.
func TestServer(t *testing.T) {
	file, err := Build(t.Context(), "../../cmd/extension-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	e := New(t, Options{Server: file})
	config, err := e.Config("jane")
	if err != nil {
		t.Fatal(err)
	}
	gv := schema.GroupVersion{Group: "workshop.example.com", Version: "v1"}
	gadgets := dynamic.NewForConfigOrDie(config).Resource(gv.WithResource("gadgets"))
	gadget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"purpose": "measures"}}}
	gadget.SetGroupVersionKind(gv.WithKind("Gadget"))
	gadget.SetName("ruler")
	if _, err := gadgets.Create(t.Context(), gadget, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create as an unprivileged user: %v, want that it is forbidden", err)
	}
	if err := e.Grant(t.Context(), "jane", rbacv1.PolicyRule{APIGroups: []string{gv.Group},
		Resources: []string{"gadgets", "identityreviews"}, Verbs: []string{"create"}}); err != nil {
		t.Fatal(err)
	}
	created, err := gadgets.Create(t.Context(), gadget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if precision, _, _ := unstructured.NestedInt64(created.Object, "spec", "precision"); precision != 2 {
		t.Errorf("created: got %v, want the default precision 2", created.Object)
	}
	review := &unstructured.Unstructured{}
	review.SetGroupVersionKind(gv.WithKind("IdentityReview"))
	review, err = dynamic.NewForConfigOrDie(config).Resource(gv.WithResource("identityreviews")).Create(t.Context(),
		review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(review.Object, "status", "authenticator"); got != "RequestHeader" {
		t.Errorf("identity review: got %v, want the front proxy's word", review.Object)
	}
}

// TestInvalidServer: an invalid server is rejected with the error of go or of the file system.
func TestInvalidServer(t *testing.T) {
	for server, want := range map[string]string{
		"../../docs":         "no Go files in",
		"example.org/nobody": "example.org/nobody",
		"/nowhere/server":    "Options.Server is /nowhere/server, which is not an executable file",
	} {
		_, err := Start(t.Context(), Options{Server: server})
		wantError(t, err, want)
	}
}
