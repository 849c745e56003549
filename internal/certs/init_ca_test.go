// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestInitRefusesToReplaceACA: Init replaces a CA only with AllowNewCA, because nobody trusts
// the new one yet.
func TestInitRefusesToReplaceACA(t *testing.T) {
	moreNames := func(o *InitOptions) { o.DNSNames = []string{"widgets.example.com"} }
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, dir string)
		opts  func(*InitOptions)
		after time.Duration
		path  string
		want  string
	}{
		"key damaged": {overwrite(ServingCADir+"/tls.key", "what"), nil, 0, ServingCADir + "/tls.key",
			"parse private key: expected a PEM block"},
		"key empty": {overwrite(ServingCADir+"/tls.key", ""), nil, 0, ServingCADir + "/tls.key",
			"found no PEM block"},
		"certificate damaged": {overwrite(ServingCADir+"/tls.crt", "-----BEGIN CERTIFICATE-----\n"), nil, 0,
			ServingCADir + "/tls.crt", "damaged PEM block"},
		"certificate gone": {remove(ServingCADir + "/tls.crt"), nil, 0, ServingCADir + "/tls.crt",
			"expected the certificate that matches the key"},
		"key of another": {overwrite(ServingCADir+"/tls.key", "file:"+FrontProxyCADir+"/tls.key"), nil, 0,
			ServingCADir + "/tls.key", "found another"},
		"CA of another kind": {func(t *testing.T, dir string) {
			overwrite(ServingCADir+"/tls.key", "file:"+FrontProxyCADir+"/tls.key")(t, dir)
			overwrite(ServingCADir+"/tls.crt", "file:"+FrontProxyCADir+"/tls.crt")(t, dir)
		}, nil, 0, ServingCADir + "/tls.crt", "expected a CA for [serverAuth], found one for [clientAuth]"},
		"gone": {remove(FrontProxyCADir), nil, 0, FrontProxyCADir, "expected the CA of"},
		"key gone, leaf due": {remove(ServingCADir + "/tls.key"), nil, 61 * day, ServingCADir + "/tls.key",
			"must be signed again (less than a third"},
		"more names": {nil, moreNames, 0, ServingCADir + "/tls.crt",
			"expected a CA that permits widgets.example.com"},
		"address": {nil, func(o *InitOptions) { o.IPs = []string{"10.0.0.1"} }, 0, ServingCADir + "/tls.crt",
			"expected a CA that permits 10.0.0.1"},
		"another service": {nil, func(o *InitOptions) { o.Service.Name = "gadgets" }, 0, ServingCADir + "/tls.crt",
			"expected a CA that permits gadgets.demo.svc, gadgets.demo, gadgets"},
		"clock far behind": {nil, nil, -2 * day, ServingCADir + "/tls.crt", "check the clock of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustInit(t, initOptions(dir, epoch))
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			opts := initOptions(dir, epoch.Add(tc.after))
			if tc.opts != nil {
				tc.opts(&opts)
			}
			before := contents(t, dir)
			_, err := Init(t.Context(), opts)
			wantError(t, err, tc.want)
			wantError(t, err, "--allow-new-ca")
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Path != filepath.Join(dir, tc.path) {
				t.Errorf("got %v, want a refusal for %s", err, tc.path)
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("a refusal changed files:\n%s", diff)
			}

			opts.AllowNewCA = true
			report := mustInit(t, opts)
			changed := slices.ContainsFunc(report.Items, func(i Item) bool {
				return i.TrustChanged && i.Action == Replaced && strings.HasPrefix(i.Reason, refused.Path)
			})
			if !changed {
				t.Errorf("got %q, want a CA replaced for the reason of the refusal, and trust changed", actions(report))
			}
			opts.AllowNewCA = false
			mustInit(t, opts)
		})
	}
}

// TestInitReplacesAnExpiredCA: Init replaces an expired CA only with AllowNewCA. The clock may
// be wrong, and the old CA may still be trusted.
func TestInitReplacesAnExpiredCA(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	old := readPEM(t, dir, ServingCADir, KeyFile)
	opts := initOptions(dir, epoch.Add(CALifetime+time.Second))
	before := contents(t, dir)
	_, err := Init(t.Context(), opts)
	wantError(t, err, ServingCADir)
	wantError(t, err, "expired at 2031-11-20T06:00:00Z; restore it from a backup, or allow a new CA with "+
		"--allow-new-ca")
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("the refusal changed files (-before +after):\n%s", diff)
	}
	opts.AllowNewCA = true
	report := mustInit(t, opts)
	for name, got := range actions(report) {
		if !strings.HasPrefix(got, "replaced: ") {
			t.Errorf("%s: %s, want it replaced", name, got)
		}
	}
	for _, item := range report.Items {
		if item.TrustChanged != item.Certificate.CA {
			t.Errorf("%s: trust changed %v", item.Name, item.TrustChanged)
		}
	}
	if string(readPEM(t, dir, ServingCADir+".old-20311120T060001Z", KeyFile)) != string(old) {
		t.Error("the old CA's key is lost")
	}
	if b, err := ParseBundle(readPEM(t, dir, ServingDir, BundleFile)); err != nil || len(b) != 1 {
		t.Errorf("ca.crt holds %d CAs, %v; want the new one only", len(b), err)
	}
}

// TestInitKeepsTheOldCAInTheBundle: ca.crt contains both CAs while the old one is valid, because
// its leaves may still be in use.
func TestInitKeepsTheOldCAInTheBundle(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	old, err := ReadKeyPair(filepath.Join(dir, ServingDir))
	if err != nil {
		t.Fatal(err)
	}
	opts := initOptions(dir, epoch)
	opts.DNSNames, opts.AllowNewCA = []string{"widgets.example.com"}, true
	report := mustInit(t, opts)
	if got := actions(report)[FrontProxyCADir]; !strings.HasPrefix(got, "unchanged") {
		t.Errorf("front-proxy CA %s, want it unchanged", got)
	}
	bundle := readPEM(t, dir, ServingDir, BundleFile)
	fresh, err := ReadKeyPair(filepath.Join(dir, ServingDir))
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string]*KeyPair{"old": old, "new": fresh} {
		if err := verifyServing(pair.Certificate, bundle, "widgets.demo.svc"); err != nil {
			t.Errorf("verify %s leaf with the new ca.crt: %v", what, err)
		}
	}
}

func TestInitWithoutACAKey(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	remove(ServingCADir+"/tls.key")(t, dir)
	report := mustInit(t, initOptions(dir, epoch))
	if item := report.Items[0]; item.Action != Kept || !strings.Contains(strings.Join(item.Notes, " "),
		"the key is stored elsewhere") {
		t.Errorf("got %s %q, want the CA kept and a note", item.Action, item.Notes)
	}
	// The bundle needs no signature.
	remove(ServingDir+"/..data/ca.crt")(t, dir)
	if got := actions(mustInit(t, initOptions(dir, epoch)))[ServingDir]; !strings.Contains(got,
		"ca.crt did not contain the CA") {
		t.Errorf("got %q, want the bundle written again", got)
	}
}

// TestInitNearCAExpiry: a leaf expires no later than its CA. Init does not replace such a
// leaf, because a new one would not be valid for longer.
func TestInitNearCAExpiry(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	end := epoch.Add(CALifetime)
	report := mustInit(t, initOptions(dir, end.Add(-10*day)))
	if item := report.Items[1]; !item.Certificate.NotAfter.Equal(end) ||
		!strings.Contains(strings.Join(item.Notes, " "), "expires together with its CA") {
		t.Errorf("leaf until %s, notes %q; want it to end with its CA at %s, and a note", item.Certificate.NotAfter,
			item.Notes, end)
	}
	if notes := strings.Join(report.Items[0].Notes, " "); !strings.Contains(notes, "plan the rotation") {
		t.Errorf("got notes %q, want a word on rotation", notes)
	}
	report = mustInit(t, initOptions(dir, end.Add(-time.Hour)))
	if item := report.Items[1]; item.Action != Kept || !strings.Contains(strings.Join(item.Notes, " "),
		"would not be valid longer") {
		t.Errorf("got %s %q, want the leaf kept and a note", item.Action, item.Notes)
	}
}

// TestInitStartsOverAfterAnExpiredLeaf: if the CA directory is lost and the leaf has expired,
// Init creates a new CA, because nothing that works depends on the old one.
func TestInitStartsOverAfterAnExpiredLeaf(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	remove(ServingCADir)(t, dir)
	report := mustInit(t, initOptions(dir, epoch.Add(91*day)))
	if got := actions(report)[ServingCADir]; got != "created: not found" {
		t.Errorf("got %q", got)
	}
}

func TestInitUsesExternalCA(t *testing.T) {
	dir := t.TempDir()
	foreign := forge(t, KeyPair{}, &x509.Certificate{
		BasicConstraintsValid: true, IsCA: true, NotBefore: epoch, NotAfter: epoch.Add(365 * day),
		SubjectKeyId: []byte{1, 2},
	})
	for name, data := range map[string][]byte{CertFile: foreign.CertPEM, KeyFile: foreign.KeyPEM} {
		path := filepath.Join(dir, ServingCADir, name)
		if err := errors.Join(makeDir(filepath.Dir(path)), os.WriteFile(path, data, 0o600),
			os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	report := mustInit(t, initOptions(dir, epoch))
	item := report.Items[0]
	if notes := strings.Join(item.Notes, " "); item.Action != Kept ||
		item.Certificate.SHA256 != Fingerprint(foreign.Certificate) ||
		strings.Contains(notes, "chmod 600") != (runtime.GOOS != "windows") ||
		!strings.Contains(notes, "[serverAuth] is sufficient") || !strings.Contains(notes, "no name constraints") {
		t.Errorf("got %s %q, want it unchanged with notes on its mode and its power", item.Action, item.Notes)
	}
}

// TestInitKeepsUnreadableFiles: even with AllowNewCA, Init does not replace a file that it
// cannot read, because the content may be needed.
func TestInitKeepsUnreadableFiles(t *testing.T) {
	for _, file := range []string{ServingCADir + "/tls.key", ServingDir + "/tls.crt", FrontProxyClientDir + "/ca.crt"} {
		dir := t.TempDir()
		// Reading a directory as a file fails for root too.
		if err := makeDir(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		opts := initOptions(dir, epoch)
		opts.AllowNewCA = true
		_, err := Init(t.Context(), opts)
		wantError(t, err, filepath.Join(dir, file)+": expected a readable file")
	}
}
