// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustInspect(t *testing.T, now time.Time, paths ...string) *Inspection {
	t.Helper()
	got, err := Inspect(paths, now)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestInspectDirectory(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(dir, epoch))
	got := mustInspect(t, epoch, dir)
	var paths []string
	for _, f := range got.Files {
		rel, err := filepath.Rel(dir, f.Path)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, rel)
	}
	want := []string{
		"front-proxy-ca/tls.crt", "front-proxy-ca/tls.key",
		"front-proxy-client/ca.crt", "front-proxy-client/tls.crt", "front-proxy-client/tls.key",
		"serving/ca.crt", "serving/tls.crt", "serving/tls.key",
		"serving-ca/tls.crt", "serving-ca/tls.key",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got.HasFindings() {
		t.Errorf("findings in a new directory: %+v", got.Files)
	}
	leaf := got.Files[6]
	if !leaf.Complete || len(leaf.Chain) != 2 || leaf.Key == nil || !*leaf.Key.MatchesCertificate {
		t.Errorf("got chain %q, key %+v; want two subjects and a key that matches", leaf.Chain, leaf.Key)
	}
	if c := leaf.Certificates[0]; c.DaysLeft != 90 || c.ResidualSeconds != 90*86400 || c.CA || c.KeyType != "ECDSA P-256" {
		t.Errorf("got %+v", c)
	}
	if diff := cmp.Diff(got, mustInspect(t, epoch, dir, filepath.Join(dir, "serving", "tls.crt")), cmp.AllowUnexported(FileInspection{})); diff != "" {
		t.Errorf("a file that was named twice is shown twice:\n%s", diff)
	}
}

func TestInspectFindings(t *testing.T) {
	dir := t.TempDir()
	ca, other := newServingCA(t), newServingCA(t)
	leaf := issueServing(t, ca, "a.b.svc")
	short, err := ca.IssueServing(ServingOptions{DNSNames: []string{"a.b.svc"}, Lifetime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"good.crt":      string(leaf.CertPEM),
		"good.key":      string(leaf.KeyPEM),
		"combined.pem":  string(leaf.KeyPEM) + string(leaf.CertPEM) + string(ca.CertPEM),
		"mismatch.pem":  string(leaf.CertPEM),
		"short.crt":     string(short.CertPEM),
		"damaged.crt":   "-----BEGIN CERTIFICATE-----\nx\n",
		"text.txt":      "not looked at",
		"damaged.key":   "x",
		"empty.key":     "",
		"mixed.cert":    string(leaf.CertPEM) + "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
		"..2026/in.crt": "passed over",
	} {
		path := filepath.Join(dir, name)
		if err := makeDir(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mismatch-key.pem"), other.KeyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range mustInspect(t, epoch.Add(time.Hour), dir).Files {
		got[filepath.Base(f.Path)] = strings.Join(f.Findings, "; ")
	}
	want := map[string]string{
		"good.crt": "", "good.key": "", "combined.pem": "", "mismatch-key.pem": "",
		"mismatch.pem": "the key in " + filepath.Join(dir, "mismatch-key.pem") + " is not the key of certificate 1",
		"short.crt":    "certificate 1 (CN=a.b.svc) expired at 2026-11-21T06:01:00Z",
		"damaged.crt":  "parse certificates: found a damaged PEM block beside 0 good ones",
		"damaged.key":  "parse private key: expected a PEM block PRIVATE KEY, found none (in damaged.key)",
		"empty.key":    "parse private key: expected a PEM block PRIVATE KEY, found none (in empty.key)",
		"mixed.cert":   `parse certificates: expected only PEM blocks CERTIFICATE, found "X509 CRL"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}

	early := mustInspect(t, epoch.Add(-2*time.Hour), filepath.Join(dir, "good.crt"))
	if f := early.Files[0].Findings; len(f) != 1 || !strings.Contains(f[0], "not valid before") {
		t.Errorf("got %q, want it not to have begun", f)
	}
	combined := mustInspect(t, epoch, filepath.Join(dir, "combined.pem")).Files[0]
	if !combined.Complete || len(combined.Certificates) != 2 || combined.Key == nil || !*combined.Key.MatchesCertificate {
		t.Errorf("got %+v, want two certificates, their chain and the key", combined)
	}
	if alone := mustInspect(t, epoch, filepath.Join(dir, "good.crt")).Files[0]; alone.Complete || len(alone.Chain) != 1 {
		t.Errorf("got chain %q without its CA", alone.Chain)
	}
}

// TestInspectAside: a CA that was replaced may end; it is listed, and anything else about it is a finding all the same.
func TestInspectAside(t *testing.T) {
	dir := t.TempDir()
	ca, other := newServingCA(t), newServingCA(t)
	aside := AsideDir(filepath.Join(dir, ServingCADir), epoch)
	if err := ca.Write(aside, nil); err != nil {
		t.Fatal(err)
	}
	got := mustInspect(t, epoch.Add(2*CALifetime), dir)
	if len(got.Files) != 2 || !got.Files[0].Aside || len(got.Files[0].Certificates) != 1 || got.HasFindings() {
		t.Errorf("got %+v, want the expired CA listed without a finding", got.Files)
	}
	if err := os.WriteFile(filepath.Join(aside, KeyFile), other.KeyPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustInspect(t, epoch.Add(2*CALifetime), dir); !got.HasFindings() {
		t.Error("the key of another CA in it: got no finding")
	}
}

// TestFilesBelowSymlink: a directory may be given as a symlink, by whose name the files are called.
func TestFilesBelowSymlink(t *testing.T) {
	dir := t.TempDir()
	mustInit(t, initOptions(filepath.Join(dir, "pki"), epoch))
	link := filepath.Join(dir, "link")
	if err := os.Symlink("pki", link); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{link, link + "/"} {
		got, err := FilesBelow(given)
		if err != nil || len(got) != 10 || got[0] != filepath.Join(link, FrontProxyCADir, CertFile) {
			t.Errorf("%s: got %q, %v; want the 10 files by the link's name", given, got, err)
		}
	}
}

func TestInspectErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Inspect([]string{dir, filepath.Join(dir, "nothing")}, epoch)
	wantError(t, err, "found no file named *.crt")
	wantError(t, err, "no such file")
}
