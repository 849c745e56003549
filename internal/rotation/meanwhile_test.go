// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestRevertedLater: a caBundle that was reverted between two runs is written again before
// anything relies on it.
func TestRevertedLater(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.runTo(ServingCA, "trust", EventFinished)
	f.now, f.caBundle = f.now.Add(72*time.Hour), certs.Bundle{b.servingCA}
	if _, err := Run(t.Context(), f.options(ServingCA)); err == nil || !f.cert(certs.ServingDir).Equal(b.serving) {
		t.Fatalf("got %v, want a stop before the new certificate is in use", err)
	}
	if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, ServingCA)
}

// TestChangesDuringHold: a rotation observes changes during a hold. A reverted caBundle blocks it;
// a temporarily missing endpoint makes the hold start over.
func TestChangesDuringHold(t *testing.T) {
	t.Run("reverted", func(t *testing.T) {
		f := newFake(t)
		b := f.before()
		opts, waits := f.options(ServingCA), 0
		wait := opts.Wait
		opts.Wait = func(ctx context.Context, d time.Duration) error {
			if waits++; waits == 3 {
				f.caBundle = certs.Bundle{b.servingCA}
			}
			return wait(ctx, d)
		}
		_, err := Run(t.Context(), opts)
		if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "trust" ||
			!strings.Contains(err.Error(), "check for other writers") {
			t.Fatalf("got %v, want it blocked at trust", err)
		}
		if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
			t.Fatal(err)
		}
		f.checkEnd(b, ServingCA)
	})
	t.Run("reverted while the new certificate is served", func(t *testing.T) {
		f := newFake(t)
		b := f.before()
		if err := revertInSwitch(t, f, 1); err != nil {
			t.Fatal(err)
		}
		f.checkEnd(b, ServingCA)
	})
	t.Run("reverted by a controller, while the new certificate is served", func(t *testing.T) {
		f := newFake(t)
		b := f.before()
		err := revertInSwitch(t, f, 1000)
		if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "switch" ||
			!strings.Contains(err.Error(), "lost 21 times during the hold") {
			t.Fatalf("got %v, want it blocked at switch", err)
		}
		// The controller reverts it a last time, during the hold on another day.
		f.now, f.caBundle = f.now.Add(72*time.Hour), certs.Bundle{b.servingCA}
		if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
			t.Fatal(err)
		}
		f.checkEnd(b, ServingCA)
	})
	t.Run("a kube-apiserver restarts in order", func(t *testing.T) {
		f := newFake(t)
		opts := f.options(ServingCA)
		var holding, back time.Time
		opts.Progress = func(e Event) {
			switch {
			case e.Step == "trust" && e.Type == EventHolding:
				holding = e.Time
			case e.Step == "trust" && e.Type == EventFinished && (back.IsZero() || e.Time.Sub(back) < f.hold):
				t.Errorf("held until %s after the kube-apiserver was back at %s, want %s more", e.Time, back, f.hold)
			}
		}
		wait := opts.Wait
		opts.Wait = func(ctx context.Context, d time.Duration) error {
			if f.restarts {
				f.restarts, back = false, f.now
			} else if !holding.IsZero() && back.IsZero() && f.now.Sub(holding) >= f.hold/2 {
				f.restarts = true
			}
			return wait(ctx, d)
		}
		if _, err := Run(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("away for a moment", func(t *testing.T) {
		f := newFake(t)
		b := f.before()
		opts := f.options(ServingCA)
		var observed time.Time
		var back time.Time
		opts.Progress = func(e Event) {
			switch {
			case e.Step == "switch" && e.Type == EventObserved:
				observed = e.Time
			case e.Step == "switch" && e.Type == EventFinished && e.Time.Sub(back) < f.hold:
				t.Errorf("held for %s after the endpoint was back, want %s", e.Time.Sub(back), f.hold)
			}
		}
		wait := opts.Wait
		opts.Wait = func(ctx context.Context, d time.Duration) error {
			f.stuckLeaf = nil
			if since := f.now.Sub(observed); !observed.IsZero() && back.IsZero() && since >= f.hold/2 {
				f.stuckLeaf, back = b.serving, f.now
			}
			return wait(ctx, d)
		}
		if _, err := Run(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if back.IsZero() {
			t.Error("the endpoint was not away")
		}
		f.checkEnd(b, ServingCA)
	})
}

// takenOver returns options for a rotation of the serving CA in which another field manager
// takes over a caBundle and removes the new CA from it. when selects the time: in the hold of
// "switch", when "distrust" begins, or after its first write. Requests of users fail only from
// then until the first wait.
func (f *fakeCluster) takenOver(when string, also func()) Options {
	opts, old := f.options(ServingCA), f.caBundle
	taken, holds, distrusts := false, false, false
	take := func() {
		f.caBundle, f.outage, taken = old, true, true
		f.register = func(a *apiregistrationv1.APIService) {
			if a.Name == "v1.widgets" {
				*a = clustertest.OwnedBy(*a, "helm", metav1.ManagedFieldsOperationApply)
			}
		}
		also()
	}
	progress, wrote, wait := opts.Progress, opts.afterWrite, opts.Wait
	opts.Progress = func(e Event) {
		progress(e)
		holds = e.Step == "switch" && e.Type == EventHolding
		if distrusts = e.Step == "distrust" && e.Type == EventStarted; distrusts && when == "distrust" {
			take()
		}
	}
	opts.afterWrite = func() {
		wrote()
		if distrusts && !taken && when == "after distrust" { // it writes ca.crt after the caBundles
			take()
		}
	}
	opts.Wait = func(ctx context.Context, d time.Duration) error {
		f.outage = false
		f.mustRespond()
		if !taken && holds && when == "switch" {
			take()
		}
		return wait(ctx, d)
	}
	return opts
}

// TestCABundleTakenOver: if another field manager takes over a caBundle and removes the new CA,
// certgen may not restore it. The old certificate is then served again immediately. When certgen
// owns the field again, the rotation continues to its end.
func TestCABundleTakenOver(t *testing.T) {
	for when, step := range map[string]string{"switch": "switch", "distrust": "distrust",
		"after distrust": "distrust"} {
		t.Run(when, func(t *testing.T) {
			f := newFake(t)
			b := f.before()
			_, err := Run(t.Context(), f.takenOver(when, func() {}))
			blocked, ok := errors.AsType[*BlockedError](err)
			if !ok || blocked.Step != step || blocked.RolledBack != Identity ||
				!strings.Contains(err.Error(), `found "helm"`) ||
				!strings.Contains(err.Error(), "the old certificate is in use") {
				t.Fatalf("got %v, want it blocked at %s, the old certificate in use and helm named", err, step)
			}
			if !f.cert(certs.ServingDir).Equal(b.serving) {
				t.Error("the new certificate is in use, which a caBundle does not trust")
			}
			f.register = nil
			if _, err := Run(t.Context(), f.options(ServingCA)); err == nil ||
				!f.cert(certs.ServingDir).Equal(b.serving) {
				t.Errorf("got %v, want trust to be established again first", err)
			}
			if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
				t.Fatal(err)
			}
			f.checkEnd(b, ServingCA)
		})
	}
}

// TestCABundleTakenOverAndKilled: a rotation that is killed at any point of that rollback continues
// when certgen owns the field again and both CAs are trusted, as after certgen apply
// --force-conflicts.
func TestCABundleTakenOverAndKilled(t *testing.T) {
	const every = 5 // calls
	for _, when := range []string{"switch", "distrust"} {
		for left := 0; ; left += every {
			f := newFake(t)
			b := f.before()
			killed := !f.survives(func() { _, _ = Run(t.Context(), f.takenOver(when, func() { f.left = left })) })
			if !killed {
				break
			}
			next, err := certs.ReadCertificate(f.store(), path.Join(servingState, "new", certs.ServingCADir))
			if err != nil {
				t.Fatal(err)
			}
			f.left, f.register, f.outage, f.leases = -1, nil, false, nil
			both := certs.Bundle{b.servingCA, next}
			f.caBundle, f.second = both, both
			if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
				t.Fatalf("%s, killed %d calls after: %v", when, left, err)
			}
			f.checkEnd(b, ServingCA)
		}
	}
}

// TestOldCARemoved: if another client distrusts the old CA while the new certificate is served,
// the rotation continues. It is not rolled back, because requests of users would fail.
func TestOldCARemoved(t *testing.T) {
	for _, do := range []func(context.Context, Options) (*State, error){Run, Abort} {
		f := newFake(t)
		b := f.before()
		f.runTo(ServingCA, "switch", EventObserved)
		next := f.caBundle.Without(b.servingCA)
		f.caBundle, f.second = next, next
		_, err := do(t.Context(), f.options(ServingCA))
		f.mustRespond()
		if err == nil {
			f.checkEnd(b, ServingCA)
		} else if _, blocked := errors.AsType[*BlockedError](err); !blocked ||
			f.cert(certs.ServingDir).Equal(b.serving) {
			t.Errorf("got %v, want it blocked with the new certificate in use", err)
		}
	}
}

// TestIssuedMeanwhile: if certgen init or kubeadm renews a certificate during an interrupted
// rotation, or a CA is added to ca.crt, an older copy does not replace them when the rotation
// continues. The switch is blocked, because the new certificate may have other names.
func TestIssuedMeanwhile(t *testing.T) {
	for rotation, tc := range map[string]struct{ ca, leaf, before string }{
		Serving:      {certs.ServingCADir, certs.ServingDir, "switch"},
		ServingCA:    {certs.ServingCADir, certs.ServingDir, "trust"},
		FrontProxyCA: {certs.FrontProxyCADir, certs.FrontProxyClientDir, "trust"},
	} {
		t.Run(rotation, func(t *testing.T) {
			f := newFake(t)
			f.runTo(rotation, tc.before, EventStarted)
			set := filepath.Join(f.dir, tc.leaf)
			ca, err := certs.ReadCA(filepath.Join(f.dir, tc.ca), func() time.Time { return f.now })
			if err != nil {
				t.Fatal(err)
			}
			renewed, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
			if rotation != FrontProxyCA {
				renewed, err = ca.IssueServing(certs.ServingOptions{DNSNames: []string{service.ServerName()}})
			}
			if err != nil {
				t.Fatal(err)
			}
			other, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageClientAuth,
				Now: func() time.Time { return f.now }})
			if err != nil {
				t.Fatal(err)
			}
			if err := renewed.Write(set, append(f.bundleIn(set), other.Certificate)); err != nil {
				t.Fatal(err)
			}
			stays := func(when string) {
				t.Helper()
				if live, bundle := f.cert(tc.leaf), f.bundleIn(set); !live.Equal(renewed.Certificate) ||
					!bundle.Contains(other.Certificate) {
					t.Errorf("%s: sha256:%.16s is in use, beside %d CAs; want what was issued since, sha256:%.16s, "+
						"and the CA that was added", when,
						certs.Fingerprint(live), len(bundle), certs.Fingerprint(renewed.Certificate))
				}
				f.mustRespond()
			}
			if _, err := Run(t.Context(), f.options(rotation)); err == nil ||
				!strings.Contains(err.Error(), "was written after the rotation started") {
				t.Errorf("got %v, want the switch blocked", err)
			}
			stays("blocked")
			f.mustAbort(rotation)
			stays("undone")
		})
	}
}

// TestThirdPartyCARemoved: a third-party CA that was removed from ca.crt during the rotation does
// not reappear from the copy of the old files when the rotation is aborted.
func TestThirdPartyCARemoved(t *testing.T) {
	for rotation, leaf := range map[string]string{Serving: certs.ServingDir, ServingCA: certs.ServingDir,
		ProxyClient: certs.FrontProxyClientDir, FrontProxyCA: certs.FrontProxyClientDir} {
		f := newFake(t)
		set := filepath.Join(f.dir, leaf)
		pair, err := certs.ReadKeyPair(set)
		if err != nil {
			t.Fatal(err)
		}
		ours := f.bundleIn(set)
		other, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageClientAuth,
			Now: func() time.Time { return f.now }})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(set, append(slices.Clone(ours), other.Certificate)); err != nil {
			t.Fatal(err)
		}
		f.runTo(rotation, "switch", EventStarted)
		live, err := certs.ReadKeyPair(set)
		if err != nil {
			t.Fatal(err)
		}
		if err := live.Write(set, f.bundleIn(set).Without(other.Certificate)); err != nil {
			t.Fatal(err)
		}
		f.mustAbort(rotation)
		if after := f.bundleIn(set); after.Contains(other.Certificate) || len(ours.Without(after...)) > 0 {
			t.Errorf("%s: got %d CAs, want %d, without that of others", rotation, len(after), len(ours))
		}
	}
}

// TestOutdatedCopy: an outdated copy of the directory cannot be used after a rotation to
// restore trust in its old CA, whose key may be compromised.
func TestOutdatedCopy(t *testing.T) {
	f := newFake(t)
	f.runTo(ServingCA, "trust", EventStarted)
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	f.mustAbort(ServingCA)
	b := f.before()
	if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	opts := f.options(ServingCA)
	opts.Dir = left
	_, err := Run(t.Context(), opts)
	if _, blocked := errors.AsType[*BlockedError](err); !blocked {
		t.Errorf("got %v, want it blocked", err)
	}
	if f.caBundle.Contains(b.servingCA) || f.second.Contains(b.servingCA) {
		t.Error("the CA that was distrusted is in a caBundle again")
	}
	f.checkEnd(b, ServingCA)
}

// revertInSwitch runs a rotation of the serving CA in which another client removes the new CA
// from a caBundle the given number of times while the new certificate is served. Requests of
// users must succeed at every event and at the end.
func revertInSwitch(t *testing.T, f *fakeCluster, times int) error {
	t.Helper()
	old := f.caBundle
	opts, inSwitch := f.options(ServingCA), false
	opts.Progress = func(e Event) {
		inSwitch = e.Step == "switch" && e.Type == EventHolding
		f.mustRespond()
	}
	wait := opts.Wait
	opts.Wait = func(ctx context.Context, d time.Duration) error {
		if inSwitch && times > 0 {
			times--
			f.caBundle = old
		}
		return wait(ctx, d)
	}
	_, err := Run(t.Context(), opts)
	return err
}

// TestReplacedBySecondOperator: if a second operator has a copy of the directory from before the
// first operator's rotation, the old certificate is not restored for kube-apiservers that both
// name.
func TestReplacedBySecondOperator(t *testing.T) {
	const rotation = FrontProxyCA
	for _, step := range []string{"stage", "trust"} {
		f := newFake(t)
		f.addProxy()
		copied := f.options(rotation)
		copied.Dir = t.TempDir()
		if err := os.CopyFS(copied.Dir, os.DirFS(f.dir)); err != nil {
			t.Fatal(err)
		}
		if err := f.runPart(copied, Run, step); err != nil {
			t.Fatal(err) // it is killed there
		}
		if _, err := Run(t.Context(), f.options(rotation)); err != nil {
			t.Fatal(err)
		}
		replaced := f.cert(certs.FrontProxyClientDir)
		if err := f.runPart(copied, Run, ""); err == nil || !f.cert(certs.FrontProxyClientDir).Equal(replaced) {
			t.Errorf("after %s: got %v, want the certificate of the first one kept", step, err)
		}
		if err := f.runPart(copied, Abort, ""); !f.cert(certs.FrontProxyClientDir).Equal(replaced) {
			t.Errorf("after %s, undone: %v, want the certificate of the first one kept", step, err)
		}
	}
}
