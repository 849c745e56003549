// SPDX-License-Identifier: Apache-2.0

package fips

import (
	"debug/buildinfo"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// binaries returns the directory of the FIPS build, which takes minutes from a cold cache. It
// skips the test without FIPS_BINARIES.
func binaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FIPS_BINARIES")
	if dir == "" {
		t.Skip("FIPS_BINARIES is not set; run: make test-fips")
	}
	return dir
}

// TestFIPSBuild checks that the binaries use a frozen version of the module, and run in FIPS mode
// unless GODEBUG disables it.
func TestFIPSBuild(t *testing.T) {
	dir := binaries(t)
	for _, name := range []string{serverName, "certgen"} {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if got := settings["GOFIPS140"]; !strings.HasPrefix(got, "v1.") {
			t.Errorf("%s: got GOFIPS140=%q, want a frozen version", name, got)
		}
		if got := settings["DefaultGODEBUG"]; !strings.Contains(got, "fips140=on") {
			t.Errorf("%s: got DefaultGODEBUG=%q, want fips140=on in it", name, got)
		}
	}
}

// TestFIPSServes checks that a real kube-apiserver proxies requests to the server, whose TLS
// accepts approved algorithms only. The mode fips140=only, in which all other algorithms are
// errors, needs an external etcd: etcd names the members of a new cluster by SHA-1.
func TestFIPSServes(t *testing.T) {
	dir := binaries(t)
	for _, tc := range []struct {
		mode    string
		options envtest.Options
	}{
		{"on", envtest.Options{Server: filepath.Join(dir, serverName)}},
		{"only", envtest.Options{Server: onlyApproved(t, filepath.Join(dir, serverName)), ExternalEtcd: true}},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			e := envtest.New(t, tc.options)
			const gadget = "sample/objects/gadget.yaml"
			for _, args := range [][]string{{"create", "-f", gadget}, {"get", "-f", gadget, "-o", "name"}} {
				out, stderr, err := envtest.Kubectl{}.Run(t.Context(), e, args...)
				if err != nil || !strings.HasPrefix(out, "gadget.workshop.example.com/sample") {
					t.Errorf("kubectl %s: got %q, %v\n%s", strings.Join(args, " "), out, err, stderr)
				}
			}
			handshakes(t, e)
		})
	}
}

const serverName = "extension-apiserver"

// onlyApproved returns a script that runs the server in the mode fips140=only. Other processes of
// the environment do not use that mode.
func onlyApproved(t *testing.T, server string) string {
	t.Helper()
	only := filepath.Join(t.TempDir(), serverName)
	script := fmt.Sprintf("#!/bin/sh\nGODEBUG=fips140=only exec '%s' \"$@\"\n", server)
	//nolint:gosec // it is run
	if err := os.WriteFile(only, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return only
}

// handshakes uses openssl: Go clients cannot choose the cipher suites of TLS 1.3.
func handshakes(t *testing.T, e *envtest.Environment) {
	server, err := url.Parse(e.Servers[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, args string
		ok         bool
	}{
		{"AES-128-GCM and P-256", "-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256 -groups P-256", true},
		{"AES-256-GCM and P-384", "-tls1_3 -ciphersuites TLS_AES_256_GCM_SHA384 -groups P-384", true},
		{"ChaCha20", "-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256 -groups P-256", false},
		{"X25519", "-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256 -groups X25519", false},
		{"TLS 1.2 and AES-128-GCM", "-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256 -groups P-256", true},
		{"TLS 1.2 and ChaCha20", "-tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305 -groups P-256", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"s_client", "-connect", server.Host, "-servername", envtest.ServerName,
				"-verify_return_error",
				"-CAfile", filepath.Join(e.PKI(), certs.ServingDir, certs.BundleFile)}, strings.Fields(tc.args)...)
			out, err := exec.CommandContext(t.Context(), "openssl", args...).CombinedOutput()
			if (err == nil) != tc.ok || strings.Contains(string(out), "alert handshake failure") == tc.ok {
				t.Errorf("openssl %s: %v, want success: %t, or a handshake failure\n%s", strings.Join(args, " "),
					err, tc.ok, out)
			}
		})
	}
}

// TestFIPSCertgen checks that certgen can create every type of key, and that the strictest mode,
// which knows no other algorithms, verifies it.
func TestFIPSCertgen(t *testing.T) {
	certgen := filepath.Join(binaries(t), "certgen")
	run := func(t *testing.T, mode string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), certgen, args...)
		cmd.Env = append(cmd.Environ(), "GODEBUG=fips140="+mode)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	initArgs := []string{"init", "--service=widgets", "--namespace=demo"}
	for _, key := range certs.KeyTypes() {
		t.Run(key, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			if out, err := run(t, "on", append(initArgs, "--key-type="+key, "--dir="+dir)...); err != nil {
				t.Fatalf("certgen init: %v\n%s", err, out)
			}
			if out, err := run(t, "only", "verify", dir); err != nil {
				t.Errorf("certgen verify: %v\n%s", err, out)
			}
		})
	}
	// docs/operate/images.md documents this: the library computes the key identifier with SHA-1, as
	// RFC 5280, section 4.2.1.2, proposes.
	out, err := run(t, "only", append(initArgs, "--dir="+filepath.Join(t.TempDir(), "pki"))...)
	if err == nil || !strings.Contains(out, "SHA-1 is not allowed in FIPS 140-only mode") {
		t.Errorf("certgen init in the mode only: got %v, want an error about SHA-1; if it works now, change "+
			"docs/operate/images.md\n%s", err, out)
	}
}
