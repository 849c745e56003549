// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// script writes a program.
func script(t *testing.T, path, body string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700)); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
}

// says is a program that prints its version.
func says(version string) string { return "echo '" + version + "'" }

// TestGivenBinaries: what KUBEBUILDER_ASSETS names is checked before it is used, and the error says all that is wrong with it.
func TestGivenBinaries(t *testing.T) {
	good := map[string]string{"etcd": says("etcd Version: 3.6.9\nGit SHA: 1.2.3"), "kube-apiserver": says("Kubernetes v1.36.0"), "kubectl": `[ "$1" = version ] && ` + says("Client Version: v1.36.0\nKustomize Version: v5.7.1")}
	for name, tc := range map[string]struct {
		other map[string]string
		want  []string
	}{
		"as they should be": {},
		"another minor":     {other: map[string]string{"kube-apiserver": says("Kubernetes v1.35.4")}, want: []string{"kube-apiserver is of version 1.35, expected 1.36"}},
		"another kubectl":   {other: map[string]string{"kubectl": says("Client Version: v1.34.4\nKustomize Version: v5.7.1")}, want: []string{"kubectl is of version 1.34, expected 1.36"}},
		"an old etcd":       {other: map[string]string{"etcd": says("etcd Version: 3.4.13")}, want: []string{"etcd is of version 3.4, expected 3.6"}},
		"two missing":       {other: map[string]string{"kubectl": "-", "etcd": "-"}, want: []string{"it has no kubectl", "it has no etcd"}},
		"one that fails":    {other: map[string]string{"etcd": "echo broken; exit 3"}, want: []string{"broken", "exit status 3", "expected 3.6"}},
		"old controllers":   {other: map[string]string{"kube-controller-manager": says("Kubernetes v1.34.1")}, want: []string{"kube-controller-manager is of version 1.34, expected 1.36"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for program, body := range good {
				script(t, filepath.Join(dir, program), body)
			}
			for program, body := range tc.other {
				if body == "-" {
					_ = os.Remove(filepath.Join(dir, program))
				} else {
					script(t, filepath.Join(dir, program), body)
				}
			}
			t.Setenv(assetsVariable, dir)
			b, err := findBinaries(t.Context(), io.Discard)
			wantError(t, err, tc.want...)
			if len(tc.want) == 0 && (b.path("etcd") != filepath.Join(dir, "etcd") || strings.HasPrefix(b.path("kube-proxy"), dir)) {
				t.Errorf("paths: got %s and %s, want the first in %s and the other in the cache", b.path("etcd"), b.path("kube-proxy"), dir)
			}
		})
	}
	t.Run("not executable", func(t *testing.T) {
		dir := t.TempDir()
		for program, body := range good {
			script(t, filepath.Join(dir, program), body)
		}
		if err := os.Chmod(filepath.Join(dir, "kubectl"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(assetsVariable, dir)
		_, err := findBinaries(t.Context(), io.Discard)
		wantError(t, err, "its kubectl is not executable", "setup-envtest use 1.36")
	})
	t.Run("a relative path", func(t *testing.T) {
		t.Setenv(assetsVariable, "bin/k8s")
		_, err := findBinaries(t.Context(), io.Discard)
		wantError(t, err, "KUBEBUILDER_ASSETS=bin/k8s", "expected an absolute path", "it has no etcd")
	})
}

// TestStartRefusesGivenBinaries: Start looks at them first.
func TestStartRefusesGivenBinaries(t *testing.T) {
	t.Setenv(assetsVariable, t.TempDir())
	_, err := Start(t.Context(), Options{})
	wantError(t, err, "it has no kube-apiserver", "setup-envtest use 1.36")
	_, err = Setup(t.Context(), io.Discard, "etcd")
	wantError(t, err, "it has no kube-apiserver", "setup-envtest use 1.36")
}

// wantError checks that an error says all that is wanted, or that there is none.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error with %q", err, text)
		}
	}
}

// emptyCache makes the cache one that has nothing.
func emptyCache(t *testing.T) *binaries {
	t.Helper()
	t.Setenv(cacheVariable, t.TempDir())
	b, err := findCache(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCannotBuild: one clear error each.
func TestCannotBuild(t *testing.T) {
	t.Run("a relative cache", func(t *testing.T) {
		t.Setenv(cacheVariable, "cache")
		_, err := findCache(io.Discard)
		wantError(t, err, `EXTENSION_APISERVER_CACHE is "cache"`, "an absolute path")
	})
	t.Run("a minor that is not pinned", func(t *testing.T) {
		t.Setenv(minorVariable, "1.12")
		_, err := findCache(io.Discard)
		wantError(t, err, `ENVTEST_K8S_VERSION is "1.12", expected one of 1.35, 1.36, 1.37`)
	})
	t.Run("no home", func(t *testing.T) {
		t.Setenv(cacheVariable, "")
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", "")
		_, err := findCache(io.Discard)
		wantError(t, err, "find the cache directory", "set EXTENSION_APISERVER_CACHE")
	})
	t.Run("a cache that cannot be written", func(t *testing.T) {
		t.Setenv(cacheVariable, "/proc/cache") // root cannot either
		b, err := findCache(io.Discard)
		wantError(t, err)
		wantError(t, b.ensure(t.Context(), "etcd"), "/proc/cache", "set EXTENSION_APISERVER_CACHE to a directory that can be written")
	})
	t.Run("no go command", func(t *testing.T) {
		b := emptyCache(t)
		t.Setenv("PATH", t.TempDir())
		wantError(t, b.ensure(t.Context(), "kubectl"), "build kubectl", `"go": executable file not found`, "install Go, or have kubectl of Kubernetes 1.36 in the directory that KUBEBUILDER_ASSETS names")
	})
	t.Run("no network and nothing cached", func(t *testing.T) {
		b := emptyCache(t)
		t.Setenv("GOMODCACHE", t.TempDir())
		t.Setenv("GOPROXY", "off")
		wantError(t, b.ensure(t.Context(), "etcd"), "build etcd", "module lookup disabled by GOPROXY=off", "it needs the Go module proxy once")
	})
	t.Run("no space", func(t *testing.T) {
		b := emptyCache(t)
		dir := t.TempDir()
		script(t, filepath.Join(dir, "go"), "#!/bin/sh\n[ \"$1\" = build ] && echo 'write /tmp/x: no space left on device' >&2 && exit 1\nexit 0\n")
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		wantError(t, b.ensure(t.Context(), "etcd"), "no space left on device", "GB once, in the directories of go env GOCACHE")
		script(t, filepath.Join(dir, "go"), "#!/bin/sh\n[ \"$1\" = run ] && echo 'write /tmp/x: no space left on device' >&2 && exit 1\nexit 0\n")
		_, err := Build(t.Context(), "./nowhere")
		wantError(t, err, "build ./nowhere", "no space left on device", "GB once, in the directories of go env GOCACHE")
	})
}

// TestBusyPort: a port on which somebody listens is not handed out.
func TestBusyPort(t *testing.T) {
	var ps ports
	first, err := ps.take()
	ps.release()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer ps.release()
	if second, err := ps.take(); err != nil || second == first {
		t.Errorf("got port %d (%v), on which somebody listens", second, err)
	}
}

// TestFilledCacheIsNotWritten: what is built is used without a lock, a go command or a right to write.
func TestFilledCacheIsNotWritten(t *testing.T) {
	b := emptyCache(t)
	script(t, filepath.Join(b.cache, "etcd"), "")
	before := listing(t, b.cache)
	t.Setenv("PATH", t.TempDir())
	wantError(t, b.ensure(t.Context(), "etcd"))
	if after := listing(t, b.cache); after != before {
		t.Errorf("files: got %s, want %s", after, before)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// TestBuildIsCutShort: of a build that is cut short nothing is left that looks like a program, and the next build makes it whole.
func TestBuildIsCutShort(t *testing.T) {
	b, bin := emptyCache(t), t.TempDir()
	// It writes to the directory after -o, in two parts.
	script(t, filepath.Join(bin, "go"), `[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n' >"$2/server"; chmod 700 "$2/server"
[ -e "`+bin+`/fast" ] || { touch "`+bin+`/begun"; sleep 600; }
echo exit 0 >>"$2/server"`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ctx, cut := context.WithCancelCause(t.Context())
	go func() {
		_ = eventually(t.Context(), "the build to begin", 10*time.Second, func(context.Context) error {
			_, err := os.Stat(filepath.Join(bin, "begun"))
			return err
		})
		cut(errors.New("cut short"))
	}()
	wantError(t, b.ensure(ctx, "etcd"), "build etcd", "cut short")
	if len(b.missing("etcd")) != 1 {
		t.Fatalf("etcd is in the cache, after %s", listing(t, b.cache))
	}
	script(t, filepath.Join(bin, "fast"), "")
	wantError(t, b.ensure(t.Context(), "etcd"))
	if out, err := exec.CommandContext(t.Context(), b.path("etcd")).CombinedOutput(); err != nil {
		t.Errorf("the program of the second build: %v: %s", err, out)
	}
}

// TestBuildTwiceAtOnce: of two processes on a cold cache one builds, and the other waits and says so. With a warm cache of Go's it takes
// as long as linking an etcd.
func TestBuildTwiceAtOnce(t *testing.T) {
	b, bin := emptyCache(t), t.TempDir()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// Three seconds, so that the one that waits has a word to say.
	script(t, filepath.Join(bin, "go"), `echo "$@" >>`+bin+`/log; sleep 3; exec `+real+` "$@"`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var both sync.WaitGroup
	outputs := make([]string, 2)
	for i := range outputs {
		both.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), asParent+"=build")
			out, err := cmd.CombinedOutput()
			if outputs[i] = string(out); err != nil {
				t.Errorf("build: %v: %s", err, out)
			}
		})
	}
	both.Wait()
	log, err := os.ReadFile(filepath.Join(bin, "log"))
	if n := strings.Count("\n"+string(log), "\nbuild "); n != 1 {
		t.Errorf("go build was called %d times (%v), want 1:\n%s", n, err, log)
	}
	if said := strings.Join(outputs, ""); !strings.Contains(said, "waits for another process") || !strings.Contains(said, "builds etcd in "+b.cache) {
		t.Errorf("the two said %q, want one that builds and one that waits", said)
	}
	if out, err := exec.CommandContext(t.Context(), b.path("etcd"), "--version").CombinedOutput(); err != nil || majorMinor(string(out)) != "3.6" {
		t.Errorf("etcd --version: %s (%v), want 3.6", out, err)
	}
}

// buildEtcd is one of those two processes.
func buildEtcd() {
	b, err := findCache(os.Stderr)
	if err == nil {
		err = b.ensure(context.Background(), "etcd")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// giveBinaries makes KUBEBUILDER_ASSETS a directory with kubebuilder's three programs, beside an empty cache.
func giveBinaries(t *testing.T) (cache *binaries) {
	t.Helper()
	filled, err := findCache(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := filled.ensure(t.Context(), givenBinaries...); err != nil {
		t.Fatal(err)
	}
	given := t.TempDir()
	for _, name := range givenBinaries {
		if err := os.Symlink(filled.path(name), filepath.Join(given, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(assetsVariable, given)
	return emptyCache(t)
}

// TestControllersFail: where the controllers cannot be built, the API is there without them, and says why.
func TestControllersFail(t *testing.T) {
	giveBinaries(t)
	server, err := Build(t.Context(), fixtureServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	var progress bytes.Buffer
	e := New(t, Options{Server: server, Progress: &progress})
	wantError(t, e.WaitControllers(t.Context()), "start the controllers: build kube-controller-manager", "install Go, or have kube-controller-manager of Kubernetes 1.36")
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), Namespace, metav1.GetOptions{}); err != nil || e.ControllersStarted() || e.Failure() != nil {
		t.Errorf("got %v, controllers %v, failure %v; want an environment that runs without controllers", err, e.ControllersStarted(), e.Failure())
	}
	if !strings.Contains(progress.String(), "No namespace is deleted") {
		t.Errorf("got the progress\n%s\nwant that it says what is missing", progress.String())
	}
}

// TestControllersLater: with kubebuilder's three programs and an empty cache the API is there before the controllers, which are built
// meanwhile and then do their work.
func TestControllersLater(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds kube-controller-manager")
	}
	empty := giveBinaries(t)
	e := New(t, Options{Progress: os.Stderr})
	if e.ControllersStarted() {
		t.Error("the controllers run already, want that their build begins when the API is there")
	}
	if err := e.WaitControllers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, empty.cache); strings.Contains(got, "kube-apiserver") {
		t.Errorf("the cache has %s, want nothing that was given", got)
	}
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	// Only the controllers make it.
	e.Eventually(t, "the ServiceAccount default", time.Minute, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
