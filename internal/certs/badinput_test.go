// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestConcurrentInits: concurrent calls of Init wait for each other and leave one consistent set.
func TestConcurrentInits(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	reports := make([]*Report, 4)
	for i := range reports {
		wg.Go(func() {
			report, err := Init(t.Context(), allSets(dir))
			if err != nil {
				t.Error(err)
			}
			reports[i] = report
		})
	}
	wg.Wait()
	made := 0
	for _, r := range reports {
		if r != nil && r.Items[0].Action == Made {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d of them created the CA, want one", made)
	}
	for name, got := range actions(mustInit(t, allSets(dir))) {
		if !strings.HasPrefix(got, "unchanged: ") {
			t.Errorf("%s: %s, want it unchanged", name, got)
		}
	}
}

// TestExpiredCASignsNothing: an expired CA signs nothing, so a leaf never outlives its CA.
func TestExpiredCASignsNothing(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	after := at(epoch.Add(CALifetime + time.Second))
	_, err := ReadCA(filepath.Join(dir, ServingCADir), after)
	wantError(t, err, "expired at 2031-11-20T06:00:00Z")
	ca, err := ReadCA(filepath.Join(dir, ServingCADir), at(epoch))
	if err != nil {
		t.Fatal(err)
	}
	ca.now = after
	_, err = ca.IssueServing(ServingOptions{DNSNames: []string{"widgets.demo.svc"}})
	wantError(t, err, "expired at")
}

// TestInitAfterInterruption: Init completes a run that was interrupted at any step and keeps
// everything that is complete.
func TestInitAfterInterruption(t *testing.T) {
	rename := func(dir, from, to string) error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
	for name, tc := range map[string]struct {
		cut  func(dir string) error
		made []string
	}{
		"version written, not current": {func(dir string) error {
			return makeDir(filepath.Join(dir, ServingDir, versionPrefix+"9"))
		}, nil},
		"links without a version": {func(dir string) error {
			return os.Remove(
				filepath.Join(dir, ServingDir, dataLink))
		}, []string{ServingDir}},
		"temporary link": {func(dir string) error {
			return os.Symlink("x",
				filepath.Join(dir, ServingDir, linkPrefix+KeyFile))
		}, nil},
		"CA without leaf": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, ServingDir)) },
			[]string{ServingDir}},
		"first set only": {func(dir string) error { return rename(dir, FrontProxyCADir, "a") }, nil},
		"empty directories": {func(dir string) error {
			if err := os.RemoveAll(filepath.Join(dir, ServingDir)); err != nil {
				return err
			}
			return makeDir(filepath.Join(dir, ServingDir, versionPrefix+"9"))
		}, []string{ServingDir}},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(name, "link") {
				t.Skip("there are no links there")
			}
			dir := t.TempDir()
			mustInit(t, initOptions(dir, epoch))
			if name == "first set only" {
				remove(FrontProxyClientDir)(t, dir)
				tc.made = []string{FrontProxyCADir, FrontProxyClientDir}
			}
			if err := tc.cut(dir); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, p := range []string{ServingCADir, ServingDir, FrontProxyCADir, FrontProxyClientDir} {
				want[p] = "unchanged"
			}
			for _, p := range tc.made {
				want[p] = "created"
			}
			got := map[string]string{}
			for name, action := range actions(mustInit(t, initOptions(dir, epoch))) {
				got[name], _, _ = strings.Cut(action, ":")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if _, err := ReadKeyPair(filepath.Join(dir, ServingDir)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNothingIsWrittenWhenSigningFails: Init signs everything before it writes the first file.
// If signing fails for the second CA, the first CA's leaves do not change.
func TestNothingIsWrittenWhenSigningFails(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	opts := initOptions(dir, epoch.Add(61*day)) // all leaves are due
	chains, err := opts.chains(opts.cas())
	if err != nil {
		t.Fatal(err)
	}
	// Simulate a signer fault that only the result shows: cfssl interprets this name as an
	// address.
	chains[1].leaves[0].want.dnsNames = []string{"10.0.0.1"}
	before := contents(t, dir)
	_, err = initLocked(chains, opts)
	wantError(t, err, "check issued certificate: differences from the request")
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
}
