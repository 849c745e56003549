// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/rotation"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
	"example.com/extension-apiserver/test/rollout/load"
)

const (
	// perStep is the minimum number of requests in each step, and inAll the minimum in total.
	perStep = 300
	inAll   = 20_000
	// settle is longer than the minute after which kube-apiserver publishes its CAs again.
	settle = 65 * time.Second
)

// TestNoRequestFails checks that no request fails, and no write and no event is lost, when
// everything is replaced in sequence under load. No console is closed or cannot be opened, and the
// old material is rejected afterwards.
func TestNoRequestFails(t *testing.T) {
	c := newCluster(t, shared)
	takeOver(t, c)
	// It has no server, and must not prevent any replacement.
	register(t, c, schema.GroupVersion{Group: "broken.example.com", Version: "v1"},
		certs.Service{Name: "broken", Namespace: metav1.NamespaceDefault})
	others := registerForeign(t, c)
	old := oldMaterial(t)
	consoles := openConsoles(t, shared)
	l := startLoad(t, shared, "load")
	l.Await(perStep)
	for _, name := range rotation.Rotations() {
		rotate(t, l, rotation.Options{Rotation: name, Dir: shared.PKI(), Observer: c}, consoles.use)
	}
	l.Enter("after")
	l.Await(max(perStep, inAll-l.Total()))
	l.End()
	old.checkRefused(t, c)
	others.checkSeen(t)
	consoles.end()
}

// TestReverted checks a rotation during which another client removes the new CA from the caBundles
// while certgen holds. The rotation stops before the new certificate is used, and the next run
// completes it. No request fails.
func TestReverted(t *testing.T) {
	c := newCluster(t, shared)
	takeOver(t, c)
	l := startLoad(t, shared, "reverted")
	defer l.End()
	opts := rotation.Options{
		Rotation: rotation.ServingCA, Dir: shared.PKI(), Service: service, Observer: c, Hold: 4 * time.Second,
		Timeout: 5 * time.Second, Poll: 200 * time.Millisecond,
	}
	opts.Progress = func(e rotation.Event) {
		if e.Step == "trust" && e.Type == rotation.EventHolding {
			l.Await(perStep)
			next := certificate(t, filepath.Join(shared.PKI(), rotation.StateSet(rotation.ServingCA), "new",
				certs.ServingCADir))
			if err := c.ChangeCABundle(t.Context(), service, nil, certs.Bundle{next}); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := rotation.Run(t.Context(), opts)
	if blocked, ok := errors.AsType[*rotation.BlockedError](err); !ok || blocked.Step != "trust" {
		t.Fatalf("got %v, want it blocked at trust", err)
	}
	l.Enter("run again")
	opts.Progress, opts.Hold, opts.Timeout = nil, time.Second, 90*time.Second
	if _, err := rotation.Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	l.Await(perStep)
}

// TestTakenOver checks a rotation during which another field manager takes over the caBundles, and
// removes the new CA, while the new certificate is served. certgen may not restore it: it
// immediately reverts to the old certificate, and requests fail no longer than that takes. When
// certgen owns the field again, the rotation continues.
func TestTakenOver(t *testing.T) {
	c := newCluster(t, shared)
	takeOver(t, c)
	configs, err := shared.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Bool
	l := load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Gadget"), Prefix: "taken",
		Tolerate: func(string, error) bool { return taken.Load() }})
	defer l.End()
	serving := filepath.Join(shared.PKI(), certs.ServingDir)
	old, before := certificate(t, serving), bundle(t, filepath.Join(serving, certs.BundleFile))
	opts := rotation.Options{
		Rotation: rotation.ServingCA, Dir: shared.PKI(), Service: service, Observer: c, Hold: 5 * time.Second,
		Timeout: 90 * time.Second, Poll: 200 * time.Millisecond,
	}
	var at time.Time
	opts.Progress = func(e rotation.Event) {
		switch {
		case e.Step == "switch" && e.Type == rotation.EventHolding && !taken.Load():
			l.Await(perStep)
			taken.Store(true)
			at = time.Now()
			applyAs(t, c, "helm", before)
		case e.Step == "switch" && e.Type == rotation.EventHolding: // the old one is served everywhere
			if took := time.Since(at); took > opts.Timeout/2 {
				t.Errorf("the old certificate was seen in use everywhere after %s, want at once and not at the timeout",
					took)
			} else {
				t.Logf("the old certificate was seen in use everywhere after %s", took.Round(100*time.Millisecond))
			}
			taken.Store(false)
			l.Enter("undone")
			l.Await(perStep)
		}
	}
	_, err = rotation.Run(t.Context(), opts)
	if blocked, ok := errors.AsType[*rotation.BlockedError](err); !ok || blocked.RolledBack != rotation.Identity ||
		!strings.Contains(err.Error(), "helm") || !certificate(t, serving).Equal(old) {
		t.Fatalf("got %v, want it blocked, helm named, and the old certificate in use", err)
	}
	takeOver(t, c)
	l.Enter("run again")
	opts.Progress, opts.Hold = nil, time.Second
	if _, err := rotation.Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	l.Await(perStep)
}

// applyAs applies a caBundle to each APIService of the Service as another field manager, with
// force.
func applyAs(t *testing.T, c apply.Client, manager string, cas certs.Bundle) {
	t.Helper()
	all, err := c.APIServices(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		config := apiregistrationv1ac.APIService(a.Name).WithSpec(
			apiregistrationv1ac.APIServiceSpec().WithCABundle(cas.PEM()...))
		if _, err := c.Aggregator.ApiregistrationV1().APIServices().Apply(t.Context(), config,
			metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerStopsDuringHold checks that the hold starts over if a server stops while certgen holds,
// and is restarted. No request fails before or after that.
func TestServerStopsDuringHold(t *testing.T) {
	c := newCluster(t, shared)
	takeOver(t, c)
	configs, err := shared.AdminConfigs()
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	l := load.Start(t, load.Options{Through: configs, Kind: v1.SchemeGroupVersion.WithKind("Gadget"), Prefix: "away",
		Tolerate: func(string, error) bool { return away.Load() }})
	defer l.End()
	var back, finished time.Time
	opts := rotation.Options{
		Rotation: rotation.Serving, Dir: shared.PKI(), Service: service, Observer: c, Hold: 5 * time.Second,
		Timeout: 90 * time.Second, Poll: 200 * time.Millisecond,
	}
	opts.Progress = func(e rotation.Event) {
		switch {
		case e.Step != "switch":
		case e.Type == rotation.EventHolding:
			l.Await(perStep)
			l.Enter("away")
			away.Store(true)
			if err := shared.StopServer(shared.Servers[1]); err != nil {
				t.Error(err)
			}
		case e.Type == rotation.EventWaiting && away.Load() && back.IsZero():
			if err := shared.StartServer(t.Context(), shared.Servers[1]); err != nil {
				t.Error(err)
			}
			back = time.Now()
		case e.Type == rotation.EventFinished:
			finished = e.Time
		}
	}
	if _, err := rotation.Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if held := finished.Sub(back); back.IsZero() || held < opts.Hold {
		t.Errorf("the server was back at %s, and the step finished after %s; want its absence noticed and the hold "+
			"of %s to start over", back, held, opts.Hold)
	}
	away.Store(false)
	l.Enter("after")
	l.Await(perStep)
}

// rotate runs a rotation under load. It calls use in each step, after the step was observed and
// has had its requests.
func rotate(t *testing.T, l *load.Load, opts rotation.Options, use func(step string)) {
	t.Helper()
	began := time.Now()
	opts.Service, opts.Hold, opts.Timeout, opts.Settle, opts.Poll = service, time.Second, 90*time.Second, settle,
		200*time.Millisecond
	opts.Progress = func(e rotation.Event) {
		t.Logf("%s %-22s %-10s %5.1fs %s", e.Rotation, e.Step, e.Type, e.ElapsedSeconds, e.Message)
		switch e.Type {
		case rotation.EventStarted:
			l.Enter(e.Rotation + "/" + e.Step)
		case rotation.EventObserved:
			l.Await(perStep)
			use(e.Rotation + "/" + e.Step)
		}
	}
	if _, err := rotation.Run(t.Context(), opts); err != nil {
		l.End()
		t.Fatal(err)
	}
	t.Logf("%s took %s", opts.Rotation, time.Since(began).Round(100*time.Millisecond))
}

// material is the certificates and CAs that must be rejected after a rotation.
type material struct {
	servingCA, proxyCA certs.Bundle
	serving, proxy     *certs.KeyPair
}

func oldMaterial(t *testing.T) material {
	t.Helper()
	at := func(name string) string { return filepath.Join(shared.PKI(), name) }
	return material{
		certs.Bundle{certificate(t, at(certs.ServingCADir))}, certs.Bundle{certificate(t, at(certs.FrontProxyCADir))},
		pair(t, at(certs.ServingDir)), pair(t, at(certs.FrontProxyClientDir)),
	}
}

// checkRefused probes each endpoint with the new material and the old one: a rejection for another
// reason would prove nothing.
func (m material) checkRefused(t *testing.T, c apply.Client) {
	t.Helper()
	now := oldMaterial(t)
	for _, tc := range []struct {
		trust    certs.Bundle
		accepted bool
	}{{now.servingCA, true}, {m.servingCA, false}} {
		served, err := c.Served(t.Context(), service, tc.trust)
		if err != nil || len(served) != 2 {
			t.Fatalf("got %d endpoints and %v, want 2", len(served), err)
		}
		for _, s := range served {
			if (s.Err == nil) != tc.accepted || s.Leaf == nil || s.Leaf.Equal(m.serving.Certificate) {
				t.Errorf("endpoint %s with %s: %v; accepted should be %t, with a new leaf", s.Endpoint.Address,
					tc.trust[0].Subject, s.Err, tc.accepted)
			}
		}
	}
	checkProxies(t, c, now.servingCA, now.proxy, m.proxy)
	checkTrust(t, c, now.servingCA[0], 1)
	checkPublished(t, c, now.proxyCA[0], m.proxyCA[0])
}

// checkProxies probes each endpoint with the front proxy's certificate, which it must trust, and
// with old ones, which it must not.
func checkProxies(t *testing.T, c apply.Client, trust certs.Bundle, now *certs.KeyPair, old ...*certs.KeyPair) {
	t.Helper()
	endpoints, err := c.Endpoints(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endpoints {
		for i, proxy := range append([]*certs.KeyPair{now}, old...) {
			want := cluster.NotTrusted
			if i == 0 {
				want = cluster.Accepted
			}
			if got, err := c.ProbeFrontProxy(t.Context(), e, service, trust, proxy); err != nil || got != want {
				t.Errorf("front proxy %s at %s: %s, %v; want %s", proxy, e.Address, got, err, want)
			}
		}
	}
}

// checkPublished checks that the ConfigMap has the front proxy's new CA and not the old one.
func checkPublished(t *testing.T, c apply.Client, now, old *x509.Certificate) {
	t.Helper()
	cm, err := c.TrustConfigMap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := certs.ParseBundle([]byte(cm.Data["requestheader-client-ca-file"]))
	if err != nil || bundle.Contains(old) || !bundle.Contains(now) {
		t.Errorf("ConfigMap: %d CAs, %v; want the new CA and not the old one", len(bundle), err)
	}
}
