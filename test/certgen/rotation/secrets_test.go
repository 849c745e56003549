// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/test/certgen/signer"
)

var secrets = rotation.Options{Service: service, Secret: "test-serving", CASecret: "test-serving-ca"}

// TestSecrets checks that certgen renew replaces a CA in the Secret that is due, under load. It is
// killed once in each step, and another process continues. The test takes the role of kubelet: it
// copies the Secret's key pair to the directory that the servers read. On kind this is kubelet.
func TestSecrets(t *testing.T) {
	c := newCluster(t, shared)
	takeOver(t, c)
	old := agedCA(t, c)
	stop := mount(t, c.Core)
	defer stop()
	l := startLoad(t, shared, "secrets")
	args := []string{"renew", "--secret", secrets.Secret, "--ca-secret", secrets.CASecret}
	plan := rotation.Plan(rotation.ServingCA)
	for _, step := range plan {
		l.Enter("killed in " + step.Name)
		if outcome, stderr := certgen(t, shared, step.Name, !step.Holds, args...); outcome != "killed" {
			l.End()
			t.Fatalf("certgen was not killed in step %s: %s\n%s", step.Name, outcome, stderr)
		}
	}
	l.Enter("to its end")
	if outcome, stderr := certgen(t, shared, "", false, args...); outcome != "done" {
		l.End()
		t.Fatalf("%s\n%s", outcome, stderr)
	}
	// Repeat it with the command. Then nothing is due.
	l.Enter("serving-ca")
	if outcome, stderr := certgen(t, shared, "", false, "rotate", rotation.ServingCA, "--secret", secrets.Secret,
		"--ca-secret", secrets.CASecret); outcome != "done" {
		l.End()
		t.Fatalf("%s\n%s", outcome, stderr)
	}
	l.Enter("nothing due")
	if outcome, stderr := certgen(t, shared, "", false, args...); outcome != "" {
		t.Errorf("with nothing due: %s\n%s", outcome, stderr)
	}
	// To a CA whose key is stored in no Secret. certgen is killed while the CA is staged, and
	// continues.
	l.Enter("to a signer")
	server := signer.Start(t, signer.Host{Start: shared.StartCommand, Dial: c.Dial}, service)
	toSigner := append([]string{"rotate", rotation.ServingCA, "--secret", secrets.Secret, "--ca-secret",
		secrets.CASecret, "--new-ca", server.CAFile}, server.Flags...)
	if outcome, stderr := certgen(t, shared, "stage", true, toSigner...); outcome != "killed" {
		t.Errorf("certgen was not killed: %s\n%s", outcome, stderr)
	}
	if outcome, stderr := certgen(t, shared, "", false, toSigner...); outcome != "done" {
		l.End()
		t.Fatalf("%s\n%s", outcome, stderr)
	}
	if outcome, stderr := certgen(t, shared, "", false, append(args, server.Flags...)...); outcome != "" {
		t.Errorf("with nothing due at the signer: %s\n%s", outcome, stderr)
	}
	// And not back to a CA whose key is stored locally.
	if outcome, stderr := certgen(t, shared, "", false, toSigner[:6]...); outcome != "exit status 1" ||
		!strings.Contains(stderr, "name the new CA's certificate and its signer") {
		t.Errorf("without the new CA: %s, %s; want it refused", outcome, stderr)
	}
	l.Await(max(perStep, inAll-l.Total()))
	l.End()

	ca, err := c.Core.CoreV1().Secrets(service.Namespace).Get(t.Context(), secrets.CASecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key := range ca.Data {
		if strings.HasSuffix(key, certs.KeyFile) {
			t.Errorf("the Secret of the CA holds %s", key)
		}
	}
	if !bytes.Equal(ca.Data[certs.CertFile], server.CA.CertPEM) {
		t.Errorf("CA in the Secret: got %s, want that of the signer", ca.Data[certs.CertFile])
	}
	checkTrust(t, c, server.CA.Certificate, 1)
	served, err := c.Served(t.Context(), service, certs.Bundle{old})
	if err != nil || len(served) != 2 {
		t.Errorf("got %d endpoints, %v, want 2", len(served), err)
	}
	for _, s := range served {
		if s.Err == nil {
			t.Errorf("endpoint %s: want it refused by the old CA", s.Endpoint.Address)
		}
	}
}

// agedCA issues the serving certificate from a CA that expires in a year, and stores both in
// Secrets.
func agedCA(t *testing.T, c apply.Client) *x509.Certificate {
	t.Helper()
	before := certificate(t, filepath.Join(shared.PKI(), certs.ServingCADir))
	current := pair(t, filepath.Join(shared.PKI(), certs.ServingDir)).Certificate
	made := time.Now().Add(time.Until(time.Now().AddDate(1, 0, 0)) - certs.CALifetime)
	aged, err := certs.NewCA(certs.CAOptions{Name: "aged", Usage: x509.ExtKeyUsageServerAuth,
		PermittedDNS: current.DNSNames, Now: func() time.Time { return made }})
	if err != nil {
		t.Fatal(err)
	}
	now, err := certs.ParseCA(aged.CertPEM, aged.KeyPEM, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := now.IssueServing(certs.ServingOptions{DNSNames: current.DNSNames})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ChangeCABundle(t.Context(), service, certs.Bundle{aged.Certificate}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Core.CoreV1().Secrets(service.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secrets.CASecret},
		Data:       map[string][]byte{certs.CertFile: aged.CertPEM, certs.KeyFile: aged.KeyPEM},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	opts := secrets
	opts.Observer = c
	store, err := rotation.OpenSecrets(t.Context(), opts)
	if err == nil {
		err = store.Write(certs.ServingDir, leaf.Files(certs.Bundle{aged.Certificate}))
	}
	if err == nil {
		err = leaf.Write(filepath.Join(shared.PKI(), certs.ServingDir), certs.Bundle{aged.Certificate})
	}
	if err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "both servers to serve the certificate of the aged CA", time.Minute,
		func(ctx context.Context) error {
			served, err := c.Served(ctx, service, certs.Bundle{aged.Certificate})
			for _, s := range served {
				if s.Err != nil {
					return s.Err
				}
			}
			return err
		})
	if err := c.ChangeCABundle(t.Context(), service, nil, certs.Bundle{before}); err != nil {
		t.Fatal(err)
	}
	return aged.Certificate
}

// mount copies the Secret to the directory of the servers within a second after a change.
func mount(t *testing.T, client kubernetes.Interface) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		version := ""
		for ctx.Err() == nil {
			secret, err := client.CoreV1().Secrets(service.Namespace).Get(ctx, secrets.Secret, metav1.GetOptions{})
			if err == nil && secret.ResourceVersion != version {
				version = secret.ResourceVersion
				files := certs.Files{}
				for name, data := range secret.Data {
					files[name] = certs.File{Data: data, Mode: 0o600}
				}
				if err := certs.WriteFiles(filepath.Join(shared.PKI(), certs.ServingDir), files); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}
