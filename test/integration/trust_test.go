// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestFrontProxyCAChanges replaces the front-proxy CA and certificate in the files of
// kube-apiserver, with both CAs trusted in between. It checks that the extension API server
// follows the ConfigMap that kube-apiserver publishes, without a restart.
func TestFrontProxyCAChanges(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	oldCA := readCA(t, e, certs.FrontProxyCADir)
	newCA, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	oldProxy, newProxy := issue(t, oldCA, certs.FrontProxyUser), issue(t, newCA, certs.FrontProxyUser)
	status := func(pair *certs.KeyPair) int {
		status, _ := directReview(t, e, pair, http.Header{"X-Remote-User": {"someone"},
			"X-Remote-Group": {"system:masters"}})
		return status
	}
	if got := status(newProxy); got != http.StatusUnauthorized {
		t.Fatalf("a certificate of the new CA before it is trusted: %d, want 401", got)
	}

	writeTrust(t, e, certs.Bundle{oldCA.Certificate, newCA.Certificate})
	e.Eventually(t, "the new CA to be trusted", envtest.WaitTimeout, func(context.Context) error {
		if got := status(newProxy); got != http.StatusCreated {
			return fmt.Errorf("status %d", got)
		}
		return nil
	})
	if got := status(oldProxy); got != http.StatusCreated {
		t.Errorf("a certificate of the old CA while both are trusted: %d, want 201", got)
	}

	if err := newProxy.Write(filepath.Join(e.PKI(), certs.FrontProxyClientDir), nil); err != nil {
		t.Fatal(err)
	}
	writeTrust(t, e, certs.Bundle{newCA.Certificate})
	// kube-apiserver adds CAs to the ConfigMap and removes none before it expires. Removing one
	// is an administrator's step.
	admin := e.Client(t)
	e.Eventually(t, "the old CA to be refused", envtest.WaitTimeout, func(ctx context.Context) error {
		cm, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if only := string(certs.Bundle{newCA.Certificate}.PEM()); cm.Data["requestheader-client-ca-file"] != only {
			cm.Data["requestheader-client-ca-file"] = only
			if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(ctx, cm,
				metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		if got := status(oldProxy); got != http.StatusUnauthorized {
			return fmt.Errorf("status %d", got)
		}
		return nil
	})
	// The aggregator itself now uses the new certificate.
	e.Eventually(t, "a request through kube-apiserver", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := gadgetCase.client(t, e.Admin(t), "").List(ctx, metav1.ListOptions{})
		return err
	})
}

// writeTrust replaces the file of kube-apiserver's --requestheader-client-ca-file, which
// kube-apiserver reloads.
func writeTrust(t *testing.T, e *envtest.Environment, bundle certs.Bundle) {
	t.Helper()
	err := certs.WriteFiles(filepath.Join(e.PKI(), certs.FrontProxyCADir),
		map[string]certs.File{certs.CertFile: {Data: bundle.PEM(), Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
}
