// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/controlplane"
)

// wantError checks that the text of an error contains all wanted parts.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error with %q", err, text)
		}
	}
}

// TestStartRejectsIncompleteAssets: Start rejects a KUBEBUILDER_ASSETS without kube-apiserver.
func TestStartRejectsIncompleteAssets(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	_, err := Start(t.Context(), Options{})
	wantError(t, err, "it has no kube-apiserver")
}

// stubGo replaces the go command by a shell script.
func stubGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestBuildWithoutSpace: the error of a build without disk space states the required space.
func TestBuildWithoutSpace(t *testing.T) {
	stubGo(t, "[ \"$1\" = run ] && echo 'write /tmp/x: no space left on device' >&2 && exit 1\nexit 0\n")
	_, err := Build(t.Context(), "./nowhere")
	wantError(t, err, "build ./nowhere", "no space left on device", "GB once, in the directories of go env GOCACHE")
}

// TestDownloadsMeanwhile: while the server is compiled, the modules of exactly those programs are
// downloaded that the environment needs to start.
func TestDownloadsMeanwhile(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("EXTENSION_APISERVER_CACHE", t.TempDir())
	stubGo(t, `download=${0%/*}/download
		if [ "$1 $2" = "list -mod=readonly" ]; then echo "$*" >$download.part; mv $download.part $download; fi
		[ "$1" = run ] || exit 0
		for second in 1 2 3 4 5 6 7 8 9 10; do
			[ ! -e $download ] || break
			sleep 1
		done
		echo "meanwhile: $(cat $download);" >&2
		exit 1`)
	options := Options{Server: "./nowhere"}
	if err := options.complete(); err != nil {
		t.Fatal(err)
	}
	e := &Environment{ctx: t.Context(), options: options}
	wantError(t, e.findPrograms(),
		"meanwhile: list -mod=readonly -deps go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver "+
			"k8s.io/kubernetes/cmd/kubectl;")
}

// giveBinaries sets KUBEBUILDER_ASSETS to a directory with kubebuilder's three programs and uses
// an empty cache.
func giveBinaries(t *testing.T) (given, cache string) {
	t.Helper()
	filled, err := controlplane.Fill(t.Context(), os.Stderr, controlplane.EnvtestPrograms...)
	if err != nil {
		t.Fatal(err)
	}
	given, cache = t.TempDir(), t.TempDir()
	for _, name := range controlplane.EnvtestPrograms {
		if err := os.Symlink(filepath.Join(filled, name), filepath.Join(given, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", given)
	t.Setenv("EXTENSION_APISERVER_CACHE", cache)
	return given, cache
}

// TestControllersFail: if the controllers cannot be built, the environment runs without them and
// reports the cause.
func TestControllersFail(t *testing.T) {
	giveBinaries(t)
	server, err := Build(t.Context(), sampleServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	var progress bytes.Buffer
	e := New(t, Options{Server: server, Progress: &progress})
	wantError(t, e.WaitControllers(t.Context()), "start the controllers: build kube-controller-manager",
		"install Go, or put kube-controller-manager of Kubernetes 1.37")
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), Namespace, metav1.GetOptions{}); err != nil ||
		e.ControllersStarted() || e.Failure() != nil {
		t.Errorf("got %v, controllers %v, failure %v; want an environment that runs without controllers", err,
			e.ControllersStarted(), e.Failure())
	}
	if !strings.Contains(progress.String(), "Without it, namespaces are not deleted") {
		t.Errorf("got the progress\n%s\nwant that it reports what is missing", progress.String())
	}
}

// TestControllersLater: with kubebuilder's three programs and an empty cache, the API is
// available before the controllers, which are built meanwhile and then started.
func TestControllersLater(t *testing.T) {
	_, empty := giveBinaries(t)
	var progress bytes.Buffer
	e := New(t, Options{Progress: io.MultiWriter(os.Stderr, &progress)})
	if e.ControllersStarted() {
		t.Error("the controllers run already, want that their build begins when the API is available")
	}
	if err := e.WaitControllers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(),
		"kube-controller-manager is being built. Until it runs, namespaces are not deleted") {
		t.Errorf("got the progress\n%s\nwant that it reports what is missing", progress.String())
	}
	if given, err := filepath.Glob(filepath.Join(empty, "controlplane", "*", "kube-apiserver")); err != nil ||
		len(given) > 0 {
		t.Errorf("the cache has %s (%v), want nothing that was given", given, err)
	}
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	// Only the controllers create it.
	e.Eventually(t, "the ServiceAccount default", time.Minute, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
