// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
)

// TestInitDirectory: there are no findings for the output of certgen init, for any path in it.
func TestInitDirectory(t *testing.T) {
	dir := t.TempDir()
	opts := certs.InitOptions{Dir: dir, Service: certs.Service{Name: "widgets", Namespace: "demo"}, Now: at(0).now}
	if _, err := certs.Init(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{
		{dir}, {filepath.Join(dir, "serving")}, {filepath.Join(dir, "serving", "tls.crt")},
		{filepath.Join(dir, "front-proxy-client", "tls.key"), filepath.Join(dir, "front-proxy-client", "ca.crt")},
	} {
		if r := mustVerify(t, Options{Service: opts.Service}, paths...); len(r.Findings) > 0 || r.Failed(true) {
			t.Errorf("%q: got %+v", paths, r.Findings)
		}
	}
	var got []string
	for _, c := range mustVerify(t, Options{}, dir, dir).Checked {
		got = append(got, fmt.Sprintf("%s %s", c.Purpose, c.ServerName))
	}
	if want := []string{"CA ", "front-proxy ", "serving widgets.demo.svc", "CA "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Chdir(filepath.Join(dir, "serving"))
	if c := mustVerify(t, Options{}, ".").Checked[0]; c.Purpose != Serving {
		t.Errorf("got %+v, want the purpose of the directory's own name", c)
	}
}

// TestFilesBelowSymlink: a directory may be given as a symlink, and the files' paths then begin
// with the symlink.
func TestFilesBelowSymlink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("not every user may make symlinks there")
	}
	dir := t.TempDir()
	opts := certs.InitOptions{Dir: filepath.Join(dir, "pki"),
		Service: certs.Service{Name: "widgets", Namespace: "demo"}, Now: at(0).now}
	if _, err := certs.Init(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("pki", link); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{link, link + "/"} {
		got, err := filesBelow(given)
		if err != nil || len(got) != 10 || got[0] != filepath.Join(link, certs.FrontProxyCADir, certs.CertFile) {
			t.Errorf("%s: got %q, %v; want the 10 files by the link's name", given, got, err)
		}
	}
}

func TestRetiredCAsAreSkipped(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "serving-ca.old-20261121T060000Z")
	f.write(old, pairFiles(f.serving))
	f.write(filepath.Join(dir, "serving"), goodServing(f))
	// The key of a pending request has no certificate yet.
	f.writePlain(filepath.Join(dir, "serving", certs.PendingDir),
		files{"tls.key": {Data: f.client.KeyPEM, Mode: 0o600}})
	if r := mustVerify(t, Options{}, dir); len(r.Checked) != 1 {
		t.Errorf("got %+v, want the retired CA and the pending key passed over", r.Checked)
	}
	if r := mustVerify(t, Options{}, old); len(r.Checked) != 1 {
		t.Errorf("got %+v, want the retired CA, which was requested", r.Checked)
	}
}

// TestFlatDirectory: in a flat directory such as kubeadm's, file names determine keys and
// purposes, and all CAs are candidates.
func TestFlatDirectory(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.writePlain(dir, files{
		"ca.crt": {Data: f.openCA.CertPEM, Mode: 0o644}, "ca.key": {Data: f.openCA.KeyPEM, Mode: 0o600},
		"front-proxy-ca.crt":     {Data: f.clientCA.CertPEM, Mode: 0o644},
		"front-proxy-client.crt": {Data: f.client.CertPEM, Mode: 0o644},
		"front-proxy-client.key": {Data: f.client.KeyPEM, Mode: 0o644},
		"lone.key":               {Data: f.serving.KeyPEM, Mode: 0o600},
		"both.pem":               {Data: slices.Concat(f.serving.CertPEM, f.serving.KeyPEM), Mode: 0o600},
		"cfssl.pem":              {Data: f.forge(f.openCA, leaf(nil)).CertPEM, Mode: 0o644},
		"cfssl-key.pem":          {Data: f.client.KeyPEM, Mode: 0o600},
	})
	r := mustVerify(t, Options{}, dir)
	var got []string
	for _, c := range r.Checked {
		got = append(got, fmt.Sprintf("%s %s", filepath.Base(c.Object), c.Purpose))
	}
	want := []string{"both.pem server", "ca.crt CA", "cfssl.pem server", "front-proxy-ca.crt CA",
		"front-proxy-client.crt front-proxy", "lone.key key"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checked (-want +got):\n%s", diff)
	}
	wantFindings := []string{
		"C06 error cfssl.pem", "F01 error front-proxy-client.key",
		"C01 info both.pem", "C04 info both.pem", "C04 info cfssl.pem", "F03 info cfssl.pem",
		"F03 info front-proxy-client.crt",
	}
	if runtime.GOOS == "windows" { // Windows has no modes and no links
		wantFindings = slices.DeleteFunc(wantFindings, func(finding string) bool {
			return strings.HasPrefix(finding, "F01 ") || strings.HasPrefix(finding, "F03 ")
		})
	}
	if diff := cmp.Diff(wantFindings, summaries(r)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
