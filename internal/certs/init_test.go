// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

func initOptions(dir string, now time.Time) InitOptions {
	return InitOptions{Dir: dir, Service: widgets, Now: at(now)}
}

func mustInit(t *testing.T, opts InitOptions) *Report {
	t.Helper()
	report, err := Init(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// actions returns the action on each key pair as "action: reason".
func actions(r *Report) map[string]string {
	out := map[string]string{}
	for _, item := range r.Items {
		out[item.Name] = string(item.Action) + ": " + item.Reason
	}
	return out
}

// contents maps each file below dir to its hash, and each link to its target.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if target, err := fs.ReadLink(root, path); err == nil {
			out[path] = target
			return nil
		}
		data, err := fs.ReadFile(root, path)
		sum := sha256.Sum256(data)
		out[path] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readPEM(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInitCreatesValidCertificates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	opts := initOptions(dir, epoch)
	opts.DNSNames, opts.IPs = []string{"Widgets.Example.com"}, []string{"10.0.0.10"}
	report := mustInit(t, opts)
	want := map[string]string{}
	for _, name := range []string{ServingCADir, ServingDir, FrontProxyCADir, FrontProxyClientDir} {
		want[name] = "created: not found"
	}
	if diff := cmp.Diff(want, actions(report)); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	serving, err := ReadKeyPair(filepath.Join(dir, ServingDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(widgets.DNSNames(), "widgets.example.com", "10.0.0.10") {
		if err := verifyServing(serving.Certificate, readPEM(t, dir, ServingDir, BundleFile), name); err != nil {
			t.Errorf("verify as %s: %v", name, err)
		}
	}
	client, err := ReadKeyPair(filepath.Join(dir, FrontProxyClientDir))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyClient(client.Certificate, readPEM(t, dir, FrontProxyClientDir, BundleFile)); err != nil {
		t.Errorf("verify client: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ServingCADir, BundleFile)); err == nil {
		t.Error("a CA's directory has a bundle")
	}
}

func TestInitKeepsValidFiles(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	before := contents(t, dir)
	report := mustInit(t, initOptions(dir, epoch.Add(59*day)))
	for name, got := range actions(report) {
		if !strings.HasPrefix(got, "unchanged: ") {
			t.Errorf("%s: got %s, want it unchanged", name, got)
		}
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
}

func TestInitWaitsForLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Dir(dir).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = Init(ctx, initOptions(dir, epoch))
	wantError(t, err, "found another certgen at work in this directory")
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestInitReportsAllInvalidOptions(t *testing.T) {
	dir := t.TempDir()
	opts := InitOptions{Service: Service{Name: "A", Namespace: ""}, DNSNames: []string{"a:1", "b"}, IPs: []string{"x"}}
	var got []string
	for _, err := range Flatten(opts.Validate()) {
		var invalid *InvalidError
		if !errors.As(err, &invalid) {
			t.Fatalf("got %T, want *InvalidError", err)
		}
		got = append(got, invalid.Field)
	}
	if diff := cmp.Diff([]string{"dir", "service", "namespace", "dns", "ip"}, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	opts.Dir = filepath.Join(dir, "new")
	if _, err := Init(t.Context(), opts); err == nil {
		t.Error("want an error")
	}
	if _, err := os.Stat(opts.Dir); err == nil {
		t.Error("invalid options created a directory")
	}
}
