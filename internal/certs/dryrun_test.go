// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestDryRun: a dry run reports what the next run does in any state of the directory, and writes
// nothing.
func TestDryRun(t *testing.T) {
	cut := func(t *testing.T, dir string) { // a write that stopped before it created its links
		for _, name := range []string{CertFile, KeyFile, BundleFile} {
			if err := os.Remove(filepath.Join(dir, ServingDir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		spoil  func(*testing.T, string)
		after  time.Duration
		change func(*InitOptions)
	}{
		"right":      {nil, 0, nil},
		"due":        {nil, 61 * day, nil},
		"CA expired": {nil, CALifetime + time.Second, func(o *InitOptions) { o.AllowNewCA = true }},
		"new name":   {nil, 0, func(o *InitOptions) { o.DNSNames, o.AllowNewCA = []string{"a.example.com"}, true }},
		"another set": {nil, 0, func(o *InitOptions) {
			o.With = []string{SetKonnectivity}
			o.KonnectivityAgentServerNames = []string{"a.example.com"}
		}},
		"no bundle":     {remove(ServingDir + "/..data/ca.crt"), 0, nil},
		"leaf gone":     {remove(ServingDir), 0, nil},
		"write cut off": {cut, 0, nil},
		"all gone":      {func(t *testing.T, dir string) { remove(".")(t, dir) }, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			mustInit(t, initOptions(dir, epoch))
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			opts := initOptions(dir, epoch.Add(tc.after))
			if tc.change != nil {
				tc.change(&opts)
			}
			before := contents(t, filepath.Dir(dir))
			opts.DryRun = true
			dry := mustInit(t, opts)
			if diff := cmp.Diff(before, contents(t, filepath.Dir(dir))); diff != "" {
				t.Errorf("a dry run changed files (-before +after):\n%s", diff)
			}
			if _, err := os.Stat(dir); name == "all gone" && err == nil {
				t.Error("a dry run created the directory")
			}
			for _, item := range dry.Items {
				if shown := item.Certificate.SHA256 != ""; shown != (item.Action == Kept) {
					t.Errorf("%s is %s: its fingerprint is shown %v", item.Name, item.Action, shown)
				}
			}
			opts.DryRun = false
			random := cmpopts.IgnoreFields(CertificateInfo{}, "RequestInfo.Subject", "Issuer", "Serial", "SHA256",
				"SubjectKeyID", "AuthorityKeyID")
			if diff := cmp.Diff(dry, mustInit(t, opts), random, cmpopts.IgnoreFields(Report{}, "DryRun")); diff != "" {
				t.Errorf("the run did something else (-dry run +run):\n%s", diff)
			}
		})
	}
}

// TestDryRunErrors: a dry run returns the same errors as a real run, even where nothing can be
// written.
func TestDryRunErrors(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	opts := initOptions(dir, epoch)
	opts.DryRun, opts.DNSNames = true, []string{"a.example.com"}
	_, err := Init(t.Context(), opts)
	wantError(t, err, "expected a CA that permits a.example.com")
	if runtime.GOOS == "windows" {
		return // Windows reports a path below a file as not found, so only writing detects it
	}
	opts.Dir = filepath.Join(dir, ServingDir, CertFile)
	_, err = Init(t.Context(), opts)
	wantError(t, err, "not a directory")
}

// TestDryRunTakesNoLock: a dry run succeeds while another process holds the lock.
func TestDryRunTakesNoLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Dir(dir).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opts := initOptions(dir, epoch)
	opts.DryRun = true
	mustInit(t, opts)
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}
