// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/frontproxy"
)

// trusting returns a client whose cluster returns the trust ConfigMap and the username of the
// server.
func trusting(trust func(attempt int) (string, error), username string) *fake.Clientset {
	client := fake.NewClientset()
	attempt := 0
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		attempt++
		ca, err := trust(attempt)
		return true, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
			Name: frontproxy.ConfigMapName}, Data: map[string]string{
			"requestheader-client-ca-file": ca, "requestheader-allowed-names": `["front-proxy-client"]`,
			"requestheader-username-headers": `["X-Remote-User"]`,
		}}, err
	})
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if username == "" {
			return true, nil, errors.New("not served")
		}
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: username}}}, nil
	})
	return client
}

// TestWaitForTrust: permanent errors are returned at once with a hint. Other errors are retried
// until startTimeout.
func TestWaitForTrust(t *testing.T) {
	always := func(ca string, err error) func(int) (string, error) {
		return func(int) (string, error) { return ca, err }
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), frontproxy.ConfigMapName, errors.New("no rule"))
	refused := errors.New("connection refused")
	ca, err := certs.NewCA(certs.CAOptions{Name: "front-proxy-ca", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	pem := string(certs.Bundle{ca.Certificate}.PEM())
	const command = "a RoleBinding to the Role extension-apiserver-authentication-reader is missing in the namespace " +
		"kube-system, create it with: " +
		"kubectl create rolebinding extension-apiserver-auth-reader -n kube-system " +
		"--role=extension-apiserver-authentication-reader "
	for _, tc := range []struct {
		name     string
		trust    func(int) (string, error)
		username string
		want     string
		least    time.Duration
		most     time.Duration
	}{
		{"trust", always(pem, nil), "", "", 0, 0},
		{"trust after a restart of kube-apiserver", func(attempt int) (string, error) {
			if attempt <= 3 {
				return "", refused
			}
			return pem, nil
		}, "", "", 3 * time.Second, 3 * time.Second},
		{"no aggregation layer", always(" \n", nil), "",
			"ConfigMap kube-system/extension-apiserver-authentication has no requestheader-client-ca-file: the " +
				"aggregation layer of this cluster is not configured; " +
				"set kube-apiserver's --requestheader-client-ca-file", 0, 0},
		{"forbidden to a ServiceAccount", always("", forbidden), "system:serviceaccount:demo:api", command +
			"--serviceaccount=demo:api", 0, 0},
		{"forbidden to a user", always("", forbidden), "alice", command + "--user=alice", 0, 0},
		{"forbidden, and nobody says to whom", always("", forbidden), "", command + "--user=USER", 0, 0},
		{"credentials refused", always("", apierrors.NewUnauthorized("expired")), "",
			"kube-apiserver rejects the credentials in the kubeconfig: expired", 0, 0},
		{"unreachable", always("", refused), "",
			"read ConfigMap kube-system/extension-apiserver-authentication from kube-apiserver within 6s: " +
				"connection refused; " +
				"check the address in the kubeconfig and whether kube-apiserver runs", 6 * time.Second, 9 * time.Second},
		{"not there", always("", apierrors.NewNotFound(corev1.Resource("configmaps"), frontproxy.ConfigMapName)), "",
			"not found; check the address in the kubeconfig", 6 * time.Second, 9 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The fake clock advances when all goroutines wait, so the test takes no time.
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := waitForTrust(t.Context(), trusting(tc.trust, tc.username), nil, testAPI.Name)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
					t.Errorf("got error %q, want %q", got, tc.want)
				}
				if took := time.Since(began); took < tc.least || took > tc.most {
					t.Errorf("took %s, want %s to %s", took, tc.least, tc.most)
				}
			})
		})
	}
}

// TestLoadKubeconfig: the error of newClient names the kubeconfig file.
func TestLoadKubeconfig(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{missing, empty} {
		if _, err := newClient(path, 0); err == nil || !strings.HasPrefix(err.Error(), `load kubeconfig "`+path+`": `) {
			t.Errorf("got error %v, want one that names %s", err, path)
		}
	}
}
