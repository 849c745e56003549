// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// asBuilder makes the test binary one of two processes that build.
const asBuilder = "CONTROLPLANE_TEST_BUILDER"

func TestMain(m *testing.M) {
	if os.Getenv(asBuilder) != "" {
		buildEtcd()
	}
	os.Exit(m.Run())
}

// script writes an executable shell script.
func script(t *testing.T, path, body string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700)); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
}

// says returns a script that prints its version.
func says(version string) string { return "echo '" + version + "'" }

// TestAssetsDirectory checks that the directory in KUBEBUILDER_ASSETS is checked before it is used,
// and that the error reports all problems.
func TestAssetsDirectory(t *testing.T) {
	good := map[string]string{"etcd": says("etcd Version: 3.7.9\nGit SHA: 1.2.3"),
		"kube-apiserver": says("Kubernetes v1.37.0"), "kubectl": `[ "$1" = version ] && ` +
			says("Client Version: v1.37.0\nKustomize Version: v5.7.1")}
	for name, tc := range map[string]struct {
		other map[string]string
		want  []string
	}{
		"as they should be": {},
		"another minor version": {other: map[string]string{"kube-apiserver": says("Kubernetes v1.35.4")},
			want: []string{"kube-apiserver has the version 1.35, and must have 1.37"}},
		"another kubectl": {other: map[string]string{"kubectl": says(
			"Client Version: v1.34.4\nKustomize Version: v5.7.1")}, want: []string{"kubectl has the version 1.34, " +
			"and must have 1.37"}},
		"an old etcd": {other: map[string]string{"etcd": says("etcd Version: 3.4.13")},
			want: []string{"etcd has the version 3.4, and must have 3.7"}},
		"two missing": {other: map[string]string{"kubectl": "-", "etcd": "-"},
			want: []string{"it has no kubectl", "it has no etcd"}},
		"one that fails": {other: map[string]string{"etcd": "echo broken; exit 3"},
			want: []string{"broken", "exit status 3", "must have 3.7"}},
		"another program": {other: map[string]string{"kube-proxy": says("Kubernetes v1.34.1")}},
		"old controllers": {other: map[string]string{"kube-controller-manager": says("Kubernetes v1.34.1")},
			want: []string{"kube-controller-manager has the version 1.34, and must have 1.37"}},
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
			b, err := Find(t.Context(), io.Discard)
			wantError(t, err, tc.want...)
			if len(tc.want) == 0 && (b.Path("etcd") != filepath.Join(dir, "etcd") ||
				strings.HasPrefix(b.Path("kube-proxy"), dir)) {
				t.Errorf("paths: got %s and %s, want the first in %s and the other in the cache", b.Path("etcd"),
					b.Path("kube-proxy"), dir)
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
		if err := os.WriteFile(filepath.Join(dir, "kube-controller-manager"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(assetsVariable, dir)
		_, err := Find(t.Context(), io.Discard)
		wantError(t, err, "its kubectl is not executable", "its kube-controller-manager is not executable",
			"setup-envtest use 1.37")
	})
	t.Run("a relative path", func(t *testing.T) {
		t.Setenv(assetsVariable, "bin/k8s")
		_, err := Find(t.Context(), io.Discard)
		wantError(t, err, "KUBEBUILDER_ASSETS=bin/k8s", "it is not an absolute path", "it has no etcd")
	})
}

// wantError checks that an error contains all wanted texts, or that it is nil if none are wanted.
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

// emptyCache sets an empty directory as the cache.
func emptyCache(t *testing.T) *Binaries {
	t.Helper()
	t.Setenv(cacheVariable, t.TempDir())
	b, err := findCache(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFillRejectsInvalidInput checks that unusable input is reported before anything is built.
func TestFillRejectsInvalidInput(t *testing.T) {
	_, err := Fill(t.Context(), io.Discard, "kubelet")
	wantError(t, err, `unknown program "kubelet"; the programs are etcd, kube-apiserver`)
	t.Setenv(assetsVariable, t.TempDir())
	_, err = Fill(t.Context(), io.Discard, "etcd")
	wantError(t, err, "it has no kube-apiserver", "setup-envtest use 1.37")
}

// TestBuildErrors checks that each obstacle causes one clear error.
func TestBuildErrors(t *testing.T) {
	t.Run("a relative cache", func(t *testing.T) {
		t.Setenv(cacheVariable, "cache")
		_, err := findCache(io.Discard)
		wantError(t, err, `EXTENSION_APISERVER_CACHE is "cache"`, "an absolute path")
	})
	t.Run("a minor version that is not pinned", func(t *testing.T) {
		t.Setenv(minorVariable, "1.12")
		_, err := findCache(io.Discard)
		wantError(t, err, `ENVTEST_K8S_VERSION is "1.12": must be one of 1.35, 1.36, 1.37`)
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
		wantError(t, b.Ensure(t.Context(), "etcd"), "/proc/cache",
			"set EXTENSION_APISERVER_CACHE to a writable directory")
	})
	t.Run("no go command", func(t *testing.T) {
		b := emptyCache(t)
		t.Setenv("PATH", t.TempDir())
		wantError(t, b.Ensure(t.Context(), "kubectl"), "build kubectl", `"go": executable file not found`,
			"install Go, or put kubectl of Kubernetes 1.37 into the directory in KUBEBUILDER_ASSETS")
	})
	t.Run("no network and nothing cached", func(t *testing.T) {
		b := emptyCache(t)
		t.Setenv("GOMODCACHE", t.TempDir())
		t.Setenv("GOPROXY", "off")
		wantError(t, b.Ensure(t.Context(), "etcd"), "build etcd", "module lookup disabled by GOPROXY=off",
			"the build needs the Go module proxy once")
	})
	t.Run("no space", func(t *testing.T) {
		b := emptyCache(t)
		dir := t.TempDir()
		script(t, filepath.Join(dir, "go"), `[ "$1" = build ] || exit 0
[ -e "`+dir+`/space" ] || { echo 'write /tmp/x: no space left on device' >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n' >"$2/server"; chmod 700 "$2/server"`)
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		wantError(t, b.Ensure(t.Context(), "etcd"), "no space left on device",
			"GB once, in the directories of go env GOCACHE")
		script(t, filepath.Join(dir, "space"), "")
		wantError(t, b.Ensure(t.Context(), "etcd"))
	})
}

// TestReportBuildDuration checks that a build that compiles much first reports the number of
// packages and the expected duration.
func TestReportBuildDuration(t *testing.T) {
	b, dir := emptyCache(t), t.TempDir()
	var progress bytes.Buffer
	b.progress = &progress
	script(t, filepath.Join(dir, "go"), `[ "$1" = build ] || { seq -f k8s.io/%.0f 240; exit; }
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n' >"$2/server"; chmod 700 "$2/server"`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	wantError(t, b.Ensure(t.Context(), "etcd"))
	if want := regexp.MustCompile(`^control plane: building etcd once, in ` + regexp.QuoteMeta(b.cache) +
		`: 240 packages, about [12] minutes with \d+ CPUs\n$`); !want.MatchString(progress.String()) {
		t.Errorf("got the progress %q, want %s", progress.String(), want)
	}
}

// TestCompleteCacheIsReadOnly checks that built programs are used without a lock, a go command or
// write permission.
func TestCompleteCacheIsReadOnly(t *testing.T) {
	b := emptyCache(t)
	script(t, filepath.Join(b.cache, "etcd"), "")
	before := listing(t, b.cache)
	t.Setenv("PATH", t.TempDir())
	wantError(t, b.Ensure(t.Context(), "etcd"))
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

// TestBuildInterrupted checks that an interrupted build leaves nothing that looks like a program,
// and that the next build completes it.
func TestBuildInterrupted(t *testing.T) {
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
		_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 10*time.Second, true,
			func(context.Context) (bool, error) {
				_, err := os.Stat(filepath.Join(bin, "begun"))
				return err == nil, nil
			})
		cut(errors.New("cut short"))
	}()
	wantError(t, b.Ensure(ctx, "etcd"), "build etcd", "cut short")
	if b.Has("etcd") {
		t.Fatalf("etcd is in the cache, after %s", listing(t, b.cache))
	}
	script(t, filepath.Join(bin, "fast"), "")
	wantError(t, b.Ensure(t.Context(), "etcd"))
	if out, err := exec.CommandContext(t.Context(), b.Path("etcd")).CombinedOutput(); err != nil {
		t.Errorf("the program of the second build: %v: %s", err, out)
	}
}

// TestDownloadInterrupted checks that an interrupted download is reported with its requirements,
// and that the next attempt continues it.
func TestDownloadInterrupted(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules, upstream, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	// The downloads of go have the layout of a module proxy.
	files := http.FileServer(http.Dir(filepath.Join(modules, "cache", "download")))
	var broken atomic.Bool
	broken.Store(true)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".zip") && broken.Load() {
			w.Header().Set("Content-Length", "1000000")
			fmt.Fprint(w, "PK")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		files.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	b := emptyCache(t)
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() { // the files are read-only
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("go clean: %v: %s", err, out)
		}
	})
	t.Setenv("GOPROXY", proxy.URL+","+upstream)
	wantError(t, b.Ensure(t.Context(), "etcd"), "build etcd", "unexpected EOF", "the build needs the Go module proxy once")
	broken.Store(false)
	wantError(t, b.Ensure(t.Context(), "etcd"))
	if !b.Has("etcd") {
		t.Error("etcd is not in the cache after the second try")
	}
}

// TestConcurrentBuilds checks that, of two processes with a cold cache, one builds, and the other
// waits and reports that it waits. With a warm Go build cache, this takes as long as linking an
// etcd.
func TestConcurrentBuilds(t *testing.T) {
	b, bin := emptyCache(t), t.TempDir()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// Three seconds, so that the waiting process prints a line.
	script(t, filepath.Join(bin, "go"), `echo "$@" >>`+bin+`/log; sleep 3; exec `+real+` "$@"`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var both sync.WaitGroup
	outputs := make([]string, 2)
	for i := range outputs {
		both.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), asBuilder+"=1")
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
	if said := strings.Join(outputs, ""); !strings.Contains(said, "waiting for another process") ||
		!strings.Contains(said, "building etcd in "+b.cache) {
		t.Errorf("the two printed %q, want one that builds and one that waits", said)
	}
	if out, err := exec.CommandContext(t.Context(), b.Path("etcd"), "--version").CombinedOutput(); err != nil ||
		majorMinor(string(out)) != "3.7" {
		t.Errorf("etcd --version: %s (%v), want 3.7", out, err)
	}
}

// buildEtcd runs in each of the two processes.
func buildEtcd() {
	b, err := findCache(os.Stderr)
	if err == nil {
		err = b.Ensure(context.Background(), "etcd")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
