// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/internal/certs"
)

// cluster is a server that identifies its users by their certificates.
type cluster struct {
	url, usersCA, serverCA string
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	dir := t.TempDir()
	c := cluster{usersCA: filepath.Join(dir, "users-ca"), serverCA: filepath.Join(dir, "server-ca.crt")}
	users, err := certs.NewCA(certs.CAOptions{Name: "users-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	servers, err := certs.NewCA(certs.CAOptions{Name: "servers-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	serving, err := servers.IssueServing(certs.ServingOptions{IPs: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(users.Write(c.usersCA, nil), os.WriteFile(c.serverCA, servers.CertPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		fmt.Fprintf(w, "%s %q", subject.CommonName, subject.Organization)
	}))
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:    certs.Bundle{users.Certificate}.Pool(),
		Certificates: []tls.Certificate{{Certificate: [][]byte{serving.Certificate.Raw}, PrivateKey: serving.Key}},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c cluster) options(t *testing.T) Options {
	t.Helper()
	return Options{
		Client: certs.ClientOptions{User: "jane", Groups: []string{"dev", "ops"}},
		CA:     c.usersCA, Server: c.url, ServerCAFile: c.serverCA, Out: filepath.Join(t.TempDir(), "jane.kubeconfig"),
	}
}

// whoami sends a request to the server with only the kubeconfig, and returns the response.
func whoami(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestKubeconfigWorks(t *testing.T) {
	c := newCluster(t)
	for _, embed := range []bool{false, true} {
		opts := c.options(t)
		opts.Embed = embed
		report, err := Write(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := whoami(t, opts.Out), `jane ["dev" "ops"]`; got != want {
			t.Errorf("embedded %v: the server sees %s, want %s", embed, got, want)
		}
		if info, err := os.Stat(opts.Out); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
		}
		data, err := os.ReadFile(opts.Out)
		if err != nil {
			t.Fatal(err)
		}
		_, pairErr := os.Stat(opts.Out + ".d")
		if strings.Contains(string(data), "-data:") != embed || (pairErr != nil) != embed {
			t.Errorf("embedded %v: directory of the pair %v, kubeconfig\n%s", embed, pairErr, data)
		}
		if item := report.Items[0]; report.Kind != "KubeconfigReport" || item.Action != certs.Made ||
			item.Certificate.Subject != "CN=jane,O=dev+O=ops" {
			t.Errorf("got report %+v", report)
		}
	}
}

// TestKubeconfigIsRenewed checks that a second Write keeps the kubeconfig and replaces its key
// pair.
func TestKubeconfigIsRenewed(t *testing.T) {
	c := newCluster(t)
	opts := c.options(t)
	first, err := Write(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Write(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if second.Items[0].Action != certs.Replaced ||
		second.Items[0].Certificate.SHA256 == first.Items[0].Certificate.SHA256 {
		t.Errorf("got %+v, want another certificate", second.Items[0])
	}
	pair, err := certs.ReadKeyPair(opts.Out + ".d")
	if err != nil || certs.Fingerprint(pair.Certificate) != second.Items[0].Certificate.SHA256 {
		t.Errorf("the pair is %v, %v; want the new one", pair, err)
	}
	whoami(t, opts.Out)
}

func TestKubeconfigErrors(t *testing.T) {
	c := newCluster(t)
	theirs := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(theirs, []byte("apiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
		wrong  int // number of *certs.InvalidError; 0 means a refusal
	}{
		"masters": {func(o *Options) { o.Client.Groups = []string{"system:masters"} },
			"--allow-system-masters", 1},
		"all at once": {func(o *Options) { *o = Options{} }, `user ""`, 5},
		"plain HTTP":  {func(o *Options) { o.Server = "http://10.0.0.1:6443" }, "https://10.0.0.1:6443", 1},
		"no scheme":   {func(o *Options) { o.Server = "10.0.0.1:6443" }, "expected a URL", 1},
		"password":    {func(o *Options) { o.Server = "https://a:b@10.0.0.1" }, "expected a URL", 1},
		"long life":   {func(o *Options) { o.Client.Lifetime = 400 * 24 * time.Hour }, "--allow-long-lived", 1},
		"key type":    {func(o *Options) { o.Client.KeyType = "ed25519" }, "refuse Ed25519", 1},
		"their file":  {func(o *Options) { o.Out = theirs }, "found one with other content", 0},
		"CA gone":     {func(o *Options) { o.CA = "nowhere" }, "expected a CA", 0},
		"server CA gone": {func(o *Options) { o.ServerCAFile = "nowhere" },
			"CAs of the server: nowhere: expected a readable file", 0},
		"server CA junk": {func(o *Options) { o.ServerCAFile = theirs }, "expected a PEM block CERTIFICATE", 0},
		"key as CA file": {func(o *Options) { o.ServerCAFile = filepath.Join(o.CA, certs.KeyFile) }, "PRIVATE KEY", 0},
	} {
		t.Run(name, func(t *testing.T) {
			opts := c.options(t)
			tc.change(&opts)
			_, err := Write(t.Context(), opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			wrong := 0
			for _, e := range certs.Flatten(err) {
				if _, ok := errors.AsType[*certs.InvalidError](e); ok {
					wrong++
				}
			}
			if _, refused := errors.AsType[*certs.RefusedError](err); wrong != tc.wrong || refused != (tc.wrong == 0) {
				t.Errorf("got %q, want %d invalid options", certs.Flatten(err), tc.wrong)
			}
			if _, err := os.Stat(opts.Out + ".d"); err == nil {
				t.Error("a refusal created a key pair")
			}
		})
	}
}
