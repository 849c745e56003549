// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs"
)

var epoch = time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)

func newCA(t *testing.T, at time.Time) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{
		Name: "test-ca", Usage: x509.ExtKeyUsageServerAuth, PermittedDNS: []string{"widgets.demo.svc"}, Now: func() time.Time { return at },
	})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// newServing writes a pair with the CAs in ca.crt and returns its directory.
func newServing(t *testing.T, ca *certs.CA, bundle certs.Bundle) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "serving")
	pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{"widgets.demo.svc"}})
	if err == nil {
		err = pair.Write(dir, bundle)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

// TestSecret reads the manifest with the types of Kubernetes, strictly.
func TestSecret(t *testing.T) {
	ca, old := newCA(t, epoch), newCA(t, epoch.Add(-certs.CALifetime-time.Second))
	dir := newServing(t, ca, certs.Bundle{ca.Certificate, old.Certificate, ca.Certificate})
	opts := SecretOptions{Name: "a", Namespace: "b", From: dir, Now: epoch}
	data, err := Secret(opts)
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Secret
	if err := yaml.UnmarshalStrict(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Secret" || got.APIVersion != "v1" || got.Name != "a" || got.Namespace != "b" || got.Type != corev1.SecretTypeTLS || len(got.Data) != 3 {
		t.Errorf("got %+v", got)
	}
	if _, err := tls.X509KeyPair(got.Data["tls.crt"], got.Data["tls.key"]); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got.Data["ca.crt"], ca.CertPEM) {
		t.Errorf("got ca.crt\n%s\nwant the one CA that is valid, once", got.Data["ca.crt"])
	}
	if again, err := Secret(opts); err != nil || !bytes.Equal(again, data) {
		t.Errorf("other bytes for the same certificates, %v", err)
	}
}

func TestSecretRefuses(t *testing.T) {
	ca := newCA(t, epoch)
	dir := newServing(t, ca, certs.Bundle{ca.Certificate})
	_, err := Secret(SecretOptions{Name: "a", Namespace: "b", From: dir, Now: epoch.Add(certs.LeafLifetime + time.Second)})
	wantError(t, err, "C07 expired at")
	_, err = Secret(SecretOptions{Name: "a", Namespace: "b", From: newServing(t, ca, certs.Bundle{newCA(t, epoch).Certificate}), Now: epoch})
	wantError(t, err, "C01 x509: certificate signed by unknown authority")
	if err := os.WriteFile(filepath.Join(dir, certs.BundleFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Secret(SecretOptions{Name: "a", Namespace: "b", From: dir, Now: epoch})
	wantError(t, err, "F04 no PEM block")
}

func TestCABundles(t *testing.T) {
	newer, older, expired := newCA(t, epoch), newCA(t, epoch.Add(-time.Hour)), newCA(t, epoch.Add(-certs.CALifetime-time.Second))
	file := filepath.Join(t.TempDir(), "cas.pem")
	write := func(bundle certs.Bundle) {
		t.Helper()
		if err := os.WriteFile(file, bundle.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(certs.Bundle{newer.Certificate, expired.Certificate, older.Certificate, newer.Certificate})
	opts := CABundleOptions{APIServices: []string{"v2.g.example.com", "v1.g.example.com", "v2.g.example.com"}, From: file, Now: epoch}
	data, err := CABundles(opts)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for doc := range strings.SplitSeq(string(data), "---\n") {
		var got apiregistrationv1.APIService
		if err := yaml.UnmarshalStrict([]byte(doc), &got); err != nil {
			t.Fatal(err)
		}
		names = append(names, got.Name)
		if want := append(bytes.Clone(older.CertPEM), newer.CertPEM...); !bytes.Equal(got.Spec.CABundle, want) {
			t.Errorf("got caBundle\n%s\nwant the two valid CAs, the older first", got.Spec.CABundle)
		}
		want := apiregistrationv1.APIService{TypeMeta: got.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: got.Name}}
		want.Spec.CABundle = got.Spec.CABundle
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("more than a name and the caBundle (-want +got):\n%s", diff)
		}
	}
	if len(names) != 2 || names[0] != "v1.g.example.com" || names[1] != "v2.g.example.com" {
		t.Errorf("got %q, want each APIService once, by name", names)
	}
	write(certs.Bundle{newer.Certificate, older.Certificate})
	if again, err := CABundles(opts); err != nil || !bytes.Equal(again, data) {
		t.Errorf("other bytes for the same set in another order, %v", err)
	}
	write(certs.Bundle{expired.Certificate})
	_, err = CABundles(opts)
	wantError(t, err, "found only expired ones")
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret.yaml")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("after")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	data, readErr := os.ReadFile(path)
	if err != nil || readErr != nil || info.Mode().Perm() != 0o600 || string(data) != "after" {
		t.Errorf("got mode %v, %q, %v, %v", info.Mode(), data, err, readErr)
	}
	// A directory in the place of the file: nothing is left behind.
	wantError(t, WriteFile(dir, []byte("x")), "write manifest")
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v; want no temporary file", entries, err)
	}
}
