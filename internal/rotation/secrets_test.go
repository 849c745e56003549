// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"example.com/extension-apiserver/internal/certs"
)

// TestRemoteSignerCAKept: a CA with a remote signer is not replaced by one whose key is in the
// cluster.
func TestRemoteSignerCAKept(t *testing.T) {
	f := newFakeInSecrets(t)
	b := f.before()
	ca := caSecret(t, f)
	delete(ca.Data, certs.KeyFile)
	if _, err := f.secrets.Core.CoreV1().Secrets(ca.Namespace).Update(t.Context(), ca,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := certs.NewCA(certs.CAOptions{Name: "client", Usage: x509.ExtKeyUsageServerAuth,
		Now: f.options(ServingCA).Now})
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageServerAuth,
		PermittedDNS: []string{"other.example.com"}, Now: f.options(ServingCA).Now})
	if err != nil {
		t.Fatal(err)
	}
	signer := &certs.RemoteSigner{URL: "https://127.0.0.1:1", CAs: certs.Bundle{client.Certificate},
		Client: tls.Certificate{Certificate: [][]byte{client.Certificate.Raw}}}
	for _, tc := range []struct {
		name     string
		rotation string
		signer   *certs.RemoteSigner
		ca       *x509.Certificate
		want     string
	}{
		{"without a signer", ServingCA, nil, nil, "name the new CA's certificate and its signer"},
		{"without a new CA", ServingCA, signer, nil, "together with --signer"},
		{"without its signer", ServingCA, nil, client.Certificate, "together with --signer"},
		{"a new CA for a leaf", Serving, signer, client.Certificate, "with serving-ca only"},
		{"the same", ServingCA, signer, b.servingCA, "expected a CA other than"},
		{"no CA", ServingCA, signer, f.cert(certs.ServingDir), "expected a CA"},
		{"for other names", ServingCA, signer, other.Certificate, "found name constraints"},
	} {
		opts := f.options(tc.rotation)
		opts.Signer, opts.NewCA = tc.signer, tc.ca
		if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want it refused with %q", tc.name, err, tc.want)
		}
		if !f.cert(certs.ServingCADir).Equal(b.servingCA) || f.state() != nil {
			t.Fatalf("%s: something was changed", tc.name)
		}
	}
	// If the rotation begins while the signer is unreachable and resumes without it, no key is
	// generated.
	opts := f.options(ServingCA)
	opts.Signer, opts.NewCA = signer, client.Certificate
	_, err = Run(t.Context(), opts)
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || !strings.Contains(err.Error(), "connection refused") ||
		blocked.Waited < opts.Timeout {
		t.Errorf("with a signer that is away: got %v, want it blocked after requests for %s", err, opts.Timeout)
	}
	if _, err := Run(t.Context(), f.options(ServingCA)); err == nil ||
		!strings.Contains(err.Error(), "the --new-ca with which the rotation started") {
		t.Errorf("then without it: got %v, want it stopped", err)
	}
	opts.NewCA = other.Certificate
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "set the same value") {
		t.Errorf("then with another: got %v, want it refused", err)
	}
	for key := range caSecret(t, f).Data {
		if strings.HasSuffix(key, "ca.tls.key") || key == certs.KeyFile {
			t.Errorf("the Secret of the CA holds %s", key)
		}
	}
}

// TestToSignerInterrupted: a run that resumes without the signer, as the CronJob does, creates
// no CA instead, even if the old CA's key is available.
func TestToSignerInterrupted(t *testing.T) {
	f := newFakeInSecrets(t)
	b, opts := f.before(), f.options(ServingCA)
	ca, err := certs.NewCA(certs.CAOptions{Name: "client", Usage: x509.ExtKeyUsageServerAuth, Now: opts.Now})
	if err != nil {
		t.Fatal(err)
	}
	opts.NewCA = ca.Certificate
	opts.Signer = &certs.RemoteSigner{URL: "https://127.0.0.1:1", CAs: certs.Bundle{ca.Certificate},
		Client: tls.Certificate{Certificate: [][]byte{ca.Certificate.Raw}}}
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("with a signer that is away: got %v, want it stopped", err)
	}
	if _, err := Run(t.Context(), f.options(ServingCA)); err == nil ||
		!strings.Contains(err.Error(), "the --new-ca with which the rotation started") {
		t.Errorf("then without it: got %v, want it stopped", err)
	}
	if state, err := Abort(t.Context(), f.options(ServingCA)); err != nil || state.Outcome != Aborted ||
		!f.cert(certs.ServingCADir).Equal(b.servingCA) {
		t.Errorf("abort: got %v, %v; want everything as it was", state, err)
	}
}

func caSecret(t *testing.T, f *fakeCluster) *corev1.Secret {
	t.Helper()
	s, err := f.secrets.Core.CoreV1().Secrets(service.Namespace).Get(t.Context(), "ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLostResponsesOfSecrets: if the response to a successful update of a Secret is lost, the
// rotation retries and recognizes the stored data.
func TestLostResponsesOfSecrets(t *testing.T) {
	for lost := 1; lost <= 5; lost++ {
		f := newFakeInSecrets(t)
		b := f.before()
		core := f.secrets.Core.(*fake.Clientset)
		var updates, version int
		core.PrependReactor("update", "secrets", func(action k8stesting.Action) (bool, runtime.Object, error) {
			next := action.(k8stesting.UpdateAction).GetObject().(*corev1.Secret)
			if next.ResourceVersion != resourceVersion(version) {
				return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), next.Name, errors.New("it changed"))
			}
			version++
			next.ResourceVersion = resourceVersion(version)
			if err := core.Tracker().Update(action.GetResource(), next, next.Namespace); err != nil {
				return true, nil, err
			}
			if updates++; updates == lost {
				return true, nil, apierrors.NewTimeoutError("the response is lost", 1)
			}
			return true, next, nil
		})
		if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
			t.Fatalf("write %d: %v", lost, err)
		}
		f.checkEnd(b, ServingCA)
		if updates < lost {
			t.Errorf("there were %d writes", updates)
		}
	}
}

func resourceVersion(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TestSecretTakenOver: if another manager takes over the Secret during a rotation, Run returns
// an error with the command that takes it back. The rotation continues after that command.
func TestSecretTakenOver(t *testing.T) {
	f := newFakeInSecrets(t)
	b := f.before()
	f.runTo(ServingCA, "trust", EventObserved)
	chart := corev1ac.Secret("s", service.Namespace).WithData(
		map[string][]byte{certs.CertFile: certs.Bundle{b.serving}.PEM()})
	if _, err := f.secrets.Core.CoreV1().Secrets(service.Namespace).Apply(t.Context(), chart,
		metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), f.options(ServingCA))
	if _, blocked := errors.AsType[*BlockedError](err); !blocked ||
		!strings.Contains(err.Error(), `conflict with "helm"`) ||
		!strings.Contains(err.Error(), "certgen renew --force-conflicts") {
		t.Fatalf("got %v, want it blocked, helm named and the command", err)
	}
	forced := f.options(ServingCA)
	forced.ForceConflicts = true
	if _, err := Run(t.Context(), forced); err != nil {
		t.Fatalf("forced: %v", err)
	}
	f.checkEnd(b, ServingCA)
}

// TestRotateUnderLease: Maintain rotates in Secrets that it has already read, under the Lease that
// it holds.
func TestRotateUnderLease(t *testing.T) {
	f := newFakeInSecrets(t)
	b := f.before()
	store, ok := f.store().(*secrets)
	if !ok {
		t.Fatalf("got a store %T", f.store())
	}
	f.leases = []certs.Service{service}
	if _, err := Run(t.Context(), f.options("").held(store, ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, ServingCA)
}

// TestDamagedKeyPair: a rotation blocks if the key pairs stored with its record are damaged. It can
// start over after the keys are removed, as the error says.
func TestDamagedKeyPair(t *testing.T) {
	f := newFakeInSecrets(t)
	b := f.before()
	f.runTo(ServingCA, "trust", EventFinished)
	secret := caSecret(t, f)
	secret.Data["rotation.new.serving.tls.key"] = []byte("damaged")
	update := func() {
		if _, err := f.secrets.Core.CoreV1().Secrets(service.Namespace).Update(t.Context(), secret,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	update()
	for _, do := range []func(context.Context, Options) (*State, error){Run, Abort} {
		_, err := do(t.Context(), f.options(ServingCA))
		if err == nil || !strings.Contains(err.Error(),
			"to give up this rotation, remove the keys rotation.* of Secret demo/ca: ") {
			t.Errorf("got %v, want what to remove", err)
		}
	}
	secret = caSecret(t, f)
	maps.DeleteFunc(secret.Data, func(key string, _ []byte) bool { return strings.HasPrefix(key, "rotation.") })
	update()
	f.now = f.now.Add(time.Minute)
	if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	if f.cert(certs.ServingDir).Equal(b.serving) || f.caBundle.Contains(b.servingCA) {
		t.Error("the CA was not replaced by the rotation that followed")
	}
}
