// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/rollout/load"
)

// TestFrontProxyPerHost uses a PKI directory for each host of a control plane. The command with
// both directories replaces the two front-proxy certificates with one, and then replaces their CA
// on both hosts. No request fails, and the old certificates are rejected.
func TestFrontProxyPerHost(t *testing.T) {
	t.Parallel()
	e := envtest.New(t, envtest.Options{Network: envtest.EndpointRouting, KubeAPIServers: 2, Servers: 2,
		FrontProxyPerHost: true})
	c := newCluster(t, e)
	var dirs []string
	var old []*certs.KeyPair
	for _, k := range e.KubeAPIServers {
		dirs = append(dirs, k.FrontProxyClientDir)
		old = append(old, pair(t, k.FrontProxyClientDir))
	}
	if old[0].Certificate.Equal(old[1].Certificate) {
		t.Fatal("both hosts begin with the same certificate, want one each")
	}
	caDir := filepath.Join(e.PKI(), certs.FrontProxyCADir)
	oldCA := certificate(t, caDir)
	trust := certs.Bundle{certificate(t, filepath.Join(e.PKI(), certs.ServingCADir))}

	l := startLoad(t, e, "hosts")
	l.Await(perStep)
	rotateHosts(t, e, l, rotation.ProxyClient, dirs)
	second := sameOnHosts(t, dirs)
	for _, leaf := range old {
		if second.Certificate.Equal(leaf.Certificate) {
			t.Error("the certificate is one from before, want a new one")
		}
	}
	l.Enter("the old CA is restored in the ConfigMap")
	putBack(t, e, c, dirs, oldCA)
	l.Await(perStep)
	rotateHosts(t, e, l, rotation.FrontProxyCA, dirs)
	l.Enter("after")
	l.Await(perStep)
	l.End()

	newCA := certificate(t, caDir)
	checkProxies(t, c, trust, sameOnHosts(t, dirs), append(old, second)...)
	checkPublished(t, c, newCA, oldCA)
	for _, dir := range dirs {
		if cas := bundle(t, filepath.Join(dir, certs.BundleFile)); len(cas) != 1 || !cas.Contains(newCA) {
			t.Errorf("%s: %d CAs, want the new one alone", filepath.Join(dir, certs.BundleFile), len(cas))
		}
	}
}

// putBack rotates while another client restores the old CA in the ConfigMap whenever certgen
// removes it, like a kube-apiserver that still has it in its file. certgen gives up, and the
// removed CA is trusted again.
func putBack(t *testing.T, e *envtest.Environment, c apply.Client, dirs []string, oldCA *x509.Certificate) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	undone := false
	_, err := rotation.Run(t.Context(), rotation.Options{
		Rotation: rotation.FrontProxyCA, Dir: e.PKI(), Service: service, Observer: c, FrontProxyClientDirs: dirs,
		Hold: time.Second, Timeout: 60 * time.Second, Settle: 5 * time.Second, // as in the command of these tests
		Progress: func(event rotation.Event) {
			switch {
			case event.Step != "distrust-configmap":
			case event.Type == rotation.EventStarted:
				others.Go(func() {
					wait.UntilWithContext(ctx, func(ctx context.Context) {
						_ = c.ChangeFrontProxyCAs(ctx,
							certs.Bundle{oldCA}, nil)
					}, 200*time.Millisecond)
				})
			case event.Type == rotation.EventUndone:
				undone = true
			}
		},
	})
	blocked, ok := errors.AsType[*rotation.BlockedError](err)
	if !ok || !strings.Contains(blocked.Error(), "again, after it was removed") || !undone {
		t.Fatalf("got %v, undone %v; want it blocked by the CA that comes back, and the step undone", err,
			undone)
	}
	checkPublished(t, c, oldCA, nil)
}

// TestHiddenKubeAPIServer checks that certgen refuses to replace the front-proxy CA if two
// kube-apiservers renew their identity Leases, but certgen has only one URL, such as that of a
// load balancer.
func TestHiddenKubeAPIServer(t *testing.T) {
	c := newCluster(t, shared)
	leases := c.Core.CoordinationV1().Leases(metav1.NamespaceSystem)
	now := metav1.NowMicro()
	second := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver-of-another-host",
			Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}},
		// kube-apiserver deletes expired identity Leases.
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)),
			RenewTime: &now},
	}
	if _, err := leases.Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leases.Delete(context.Background(), second.Name, metav1.DeleteOptions{}) })
	urls, err := c.KubeAPIServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.KubeAPIServerURLs = urls[:1]
	_, err = rotation.Run(t.Context(), rotation.Options{Rotation: rotation.FrontProxyCA, Dir: shared.PKI(),
		Service: service, Observer: c, Hold: time.Second})
	if refused, ok := errors.AsType[*certs.RefusedError](err); !ok ||
		!strings.Contains(refused.Reason, "2 kube-apiservers have renewed their identity Lease") {
		t.Errorf("got %v, want a refusal that counts them", err)
	}
}

// rotateHosts runs the command under load.
func rotateHosts(t *testing.T, e *envtest.Environment, l *load.Load, name string, dirs []string) {
	t.Helper()
	l.Enter("certgen rotate " + name)
	if outcome, stderr := certgenRotate(t, e, name, "", false, "--front-proxy-client",
		strings.Join(dirs, ",")); outcome != "done" {
		l.End()
		t.Fatalf("%s\n%s", outcome, stderr)
	}
	l.Await(perStep)
}

// sameOnHosts returns the key pair, which must be the same in all directories.
func sameOnHosts(t *testing.T, dirs []string) *certs.KeyPair {
	t.Helper()
	first := pair(t, dirs[0])
	for _, dir := range dirs[1:] {
		if !pair(t, dir).Certificate.Equal(first.Certificate) {
			t.Errorf("%s and %s hold different certificates, want one", dirs[0], dir)
		}
	}
	return first
}
