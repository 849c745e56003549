// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestBlocked stops rotations at what cannot be seen, mends that, and runs them to their end. Users get answers all
// the time.
func TestBlocked(t *testing.T) {
	failing := func(f *fakeCluster, when func() bool) {
		f.failAnswer = func() error {
			if when() {
				return errors.New("503 service unavailable")
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name, rotation, step, missing string
		tookBack, waits               bool
		fault                         func(f *fakeCluster)
	}{
		{"an endpoint does not reload", Serving, "switch", "endpoint 10.0.0.1:443 serves the certificate", false, true,
			func(f *fakeCluster) { f.stuckLeaf = f.cert(certs.ServingDir) }},
		{"a kube-apiserver does not see the caBundle", ServingCA, "trust", "has an older version", false, true,
			func(f *fakeCluster) { f.unseen = true }},
		{"no answers with the new serving CA alone", ServingCA, "distrust", "503", true, false,
			func(f *fakeCluster) { failing(f, func() bool { return len(f.second) == 1 && f.version > 2 }) }},
		{"an endpoint does not see the new proxy CA", FrontProxyCA, "trust", "expected the certificate", false, true,
			func(f *fakeCluster) { f.probe = cluster.NotTrusted }},
		{"an endpoint takes the proxy for a user", FrontProxyCA, "trust", "found AsUser", false, false,
			func(f *fakeCluster) { f.probe = cluster.AsUser }},
		{"a kube-apiserver still has the old proxy CA in its file", FrontProxyCA, "distrust-configmap", "held the CA CN=front-proxy-ca", true, true,
			func(f *fakeCluster) { f.foreignCA = f.cert(certs.FrontProxyCADir) }},
		{"no answers with the new proxy CA alone", FrontProxyCA, "distrust-files", "503", true, false,
			func(f *fakeCluster) {
				failing(f, func() bool { s := f.state(); return s != nil && s.Steps[len(s.Steps)-1].Name == "distrust-files" })
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			b := f.before()
			tc.fault(f)
			began := f.now
			_, err := Run(t.Context(), f.options(tc.rotation))
			blocked, ok := errors.AsType[*BlockedError](err)
			if !ok {
				t.Fatalf("got %v, want a BlockedError", err)
			}
			if blocked.Step != tc.step || !strings.Contains(blocked.Missing.Error(), tc.missing) || blocked.TookBack != tc.tookBack {
				t.Errorf("blocked at %s, took back %t: %v; want %s, %t, %q", blocked.Step, blocked.TookBack, blocked.Missing, tc.step, tc.tookBack, tc.missing)
			}
			if waited := blocked.Waited > 0; waited != tc.waits {
				t.Errorf("waited %s in all %s, want waiting: %t", blocked.Waited, f.now.Sub(began), tc.waits)
			}
			if s := f.state(); !s.Unfinished() || s.Blocked == "" {
				t.Errorf("the record does not say that it is blocked: %s", f.stateText())
			}
			f.mustAnswer()

			f.stuckLeaf, f.unseen, f.probe, f.foreignCA, f.failAnswer = nil, false, "", nil, nil
			if _, err := Run(t.Context(), f.options(tc.rotation)); err != nil {
				t.Fatalf("after it was mended: %v", err)
			}
			f.checkEnd(b, tc.rotation)
		})
	}
}

// TestNotDistrustedWhileServed: an endpoint that serves the old certificate again keeps the old CA trusted. Users get answers
// after every single write, see fakeCluster.
func TestNotDistrustedWhileServed(t *testing.T) {
	f := newFake(t)
	b := f.before()
	opts := f.options(ServingCA)
	opts.Progress = func(e Event) {
		if e.Step == "distrust" && e.Type == EventStarted {
			f.stuckLeaf = b.serving
		}
	}
	_, err := Run(t.Context(), opts)
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "distrust" || !strings.Contains(err.Error(), "serves the certificate") {
		t.Errorf("got %v, want it blocked at distrust by the endpoint", err)
	}
	f.mustAnswer()
	f.stuckLeaf = nil
	if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, ServingCA)
}

// TestAbortAfterTakingBack: what was distrusted and taken back can be aborted, since both CAs are trusted again.
func TestAbortAfterTakingBack(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.foreignCA = f.cert(certs.FrontProxyCADir)
	if _, err := Run(t.Context(), f.options(FrontProxyCA)); err == nil {
		t.Fatal("want an error")
	}
	if _, err := Abort(t.Context(), f.options(FrontProxyCA)); err != nil {
		t.Fatal(err)
	}
	f.checkAborted(b)
}

// TestCAKeyHasOnePlace: while a leaf is replaced, the key of its CA, which stays, is not copied.
func TestCAKeyHasOnePlace(t *testing.T) {
	for rotation, want := range map[string]bool{Serving: false, ServingCA: true} {
		f := newFake(t)
		f.runTo(rotation, "stage", EventFinished)
		files, err := f.store().Read(kept(certs.ServingCADir))
		if err != nil {
			t.Fatal(err)
		}
		if _, copied := files[certs.KeyFile]; copied != want || len(files[certs.CertFile].Data) == 0 {
			t.Errorf("%s: the CA's key is copied %v, with %d files in all; want %v", rotation, copied, len(files), want)
		}
	}
}

// TestRefusedBeforeItBegins leaves no record, so that anything else may begin.
func TestRefusedBeforeItBegins(t *testing.T) {
	for _, tc := range []struct {
		name, rotation, want string
		fault                func(f *fakeCluster)
	}{
		{"another Service", Serving, "expected a certificate for other.demo.svc", nil},
		{"no CA key", Serving, "expected the CA's key, found none", func(f *fakeCluster) { remove(f, certs.ServingCADir, certs.KeyFile) }},
		{"no serving pair", ServingCA, "read pair: open ", func(f *fakeCluster) { remove(f, certs.ServingDir, certs.CertFile) }},
		{"another pair is served", ServingCA, "serves the certificate", func(f *fakeCluster) { f.stuckLeaf = f.cert(certs.ServingCADir) }},
		{"a name that is not allowed", ProxyClient, `to allow "front-proxy-client"`, func(f *fakeCluster) { f.names = `["other"]` }},
		{"a re-signed CA of users", ProxyClient, "has the key of", func(f *fakeCluster) {
			f.users = string(clustertest.SameKeyCA(f.t, readTestCA(f, certs.FrontProxyCADir)).CertPEM)
		}},
		{"a CA of users below the front proxy's", FrontProxyCA, "in requestheader-client-ca-file signed CN=users-ca@", func(f *fakeCluster) {
			f.users = string(clustertest.SignedPEM(f.t, clustertest.NewCA(f.t, "users-ca", x509.ExtKeyUsageClientAuth), readTestCA(f, certs.FrontProxyCADir)))
		}},
		{"CAs of users that cannot be parsed", ProxyClient, "malformed client-ca-file", func(f *fakeCluster) { f.users = "PEM" }},
		{"no right to APIServices", ServingCA, "apiservices is forbidden", func(f *fakeCluster) { f.forbidden = errors.New("apiservices is forbidden") }},
		{"no right to the ConfigMap", FrontProxyCA, "configmaps is forbidden", func(f *fakeCluster) { f.forbidden = errors.New("configmaps is forbidden") }},
		{"a CA that is not published", FrontProxyCA, "verify the client certificate", func(f *fakeCluster) {
			ca, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageClientAuth})
			if err != nil {
				f.t.Fatal(err)
			}
			pair, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
			if err != nil {
				f.t.Fatal(err)
			}
			if err := pair.Write(filepath.Join(f.dir, certs.FrontProxyClientDir), certs.Bundle{f.cert(certs.FrontProxyCADir)}); err != nil {
				f.t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			opts := f.options(tc.rotation)
			if tc.fault == nil {
				opts.Service.Name = "other"
			} else {
				tc.fault(f)
			}
			if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if s := f.state(); s != nil {
				t.Errorf("it left a record: %s", f.stateText())
			}
		})
	}
}

func readTestCA(f *fakeCluster, name string) *certs.CA {
	ca, err := certs.ReadCA(filepath.Join(f.dir, name), func() time.Time { return f.now })
	if err != nil {
		f.t.Fatal(err)
	}
	return ca
}

func remove(f *fakeCluster, dir, file string) {
	if err := os.Remove(filepath.Join(f.dir, dir, file)); err != nil {
		f.t.Fatal(err)
	}
}

// TestOneRotationAtATime: an unfinished rotation must end before another begins.
func TestOneRotationAtATime(t *testing.T) {
	f := newFake(t)
	f.unseen = true
	if _, err := Run(t.Context(), f.options(ServingCA)); err == nil {
		t.Fatal("want an error")
	}
	_, err := Run(t.Context(), f.options(FrontProxyCA))
	if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), "found serving-ca") {
		t.Errorf("got %v, want a refusal that names serving-ca", err)
	}
	if _, err := Abort(t.Context(), newFake(t).options(Serving)); err == nil || !strings.Contains(err.Error(), "found none") {
		t.Errorf("abort without a rotation: %v", err)
	}
}

// TestNoEarlySwitch: a leaf that a live caBundle does not trust is never written.
func TestNoEarlySwitch(t *testing.T) {
	f := newFake(t)
	b := f.before()
	opts := f.options(ServingCA)
	opts.Progress = func(e Event) {
		if e.Step == "trust" && e.Type == EventFinished {
			f.caBundle = certs.Bundle{b.servingCA} // somebody wrote over it
		}
	}
	_, err := Run(t.Context(), opts)
	if _, ok := errors.AsType[*BlockedError](err); !ok || !strings.Contains(err.Error(), "v1.widgets does not hold the 2 CAs that were applied") {
		t.Fatalf("got %v, want a BlockedError", err)
	}
	if !f.cert(certs.ServingDir).Equal(b.serving) {
		t.Error("the new certificate is in use")
	}
	f.mustAnswer()
	if _, err := Abort(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkAborted(b)
}

// TestRevertedLater: a bundle that is put back between two runs is written again before anything relies on it.
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

// TestSeenDuringHold: what happens while a rotation holds is seen. A bundle that somebody puts back stops it; an endpoint that is
// away for a moment makes the hold begin anew.
func TestSeenDuringHold(t *testing.T) {
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
		if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "trust" || !strings.Contains(err.Error(), "does something else write it?") {
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
		if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "switch" || !strings.Contains(err.Error(), "lost 21 times while it had to last") {
			t.Fatalf("got %v, want it blocked at switch", err)
		}
		// The controller's last word, in the hold of another day.
		f.now, f.caBundle = f.now.Add(72*time.Hour), certs.Bundle{b.servingCA}
		if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
			t.Fatal(err)
		}
		f.checkEnd(b, ServingCA)
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

// TestOldCATakenOut: somebody distrusts the old CA while the new certificate is served. The rotation goes on; to take it back would leave users
// without answers, and is not done.
func TestOldCATakenOut(t *testing.T) {
	for _, do := range []func(context.Context, Options) (*State, error){Run, Abort} {
		f := newFake(t)
		b := f.before()
		f.runTo(ServingCA, "switch", EventObserved)
		next := f.caBundle.Without(b.servingCA)
		f.caBundle, f.second = next, next
		_, err := do(t.Context(), f.options(ServingCA))
		f.mustAnswer()
		if err == nil {
			f.checkEnd(b, ServingCA)
		} else if _, blocked := errors.AsType[*BlockedError](err); !blocked || f.cert(certs.ServingDir).Equal(b.serving) {
			t.Errorf("got %v, want it blocked with the new certificate in use", err)
		}
	}
}

// TestIssuedMeanwhile: what certgen init or kubeadm issues while a rotation waits for a person stays, and so does a CA that somebody added to
// ca.crt: an older copy does not take its place when the rotation goes on. The switch is blocked, since the new certificate may have other names.
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
			other, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageClientAuth, Now: func() time.Time { return f.now }})
			if err != nil {
				t.Fatal(err)
			}
			if err := renewed.Write(set, append(f.bundleIn(set), other.Certificate)); err != nil {
				t.Fatal(err)
			}
			stays := func(when string) {
				t.Helper()
				if live, bundle := f.cert(tc.leaf), f.bundleIn(set); !live.Equal(renewed.Certificate) || !bundle.Contains(other.Certificate) {
					t.Errorf("%s: sha256:%.16s is in use, beside %d CAs; want what was issued since, sha256:%.16s, and the CA that was added", when,
						certs.Fingerprint(live), len(bundle), certs.Fingerprint(renewed.Certificate))
				}
				f.mustAnswer()
			}
			if _, err := Run(t.Context(), f.options(rotation)); err == nil || !strings.Contains(err.Error(), "was not there when the rotation began") {
				t.Errorf("got %v, want the switch blocked", err)
			}
			stays("blocked")
			f.mustAbort(rotation)
			stays("taken back")
		})
	}
}

// TestCopyLeftBehind: a copy of the directory from before a rotation is taken up after it, when the CA that it knows may be in wrong hands.
func TestCopyLeftBehind(t *testing.T) {
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

// revertInSwitch runs a rotation of the serving CA in which somebody takes the new CA out of a caBundle so many times while the new certificate is
// served. Users must get answers at every event, and after the end.
func revertInSwitch(t *testing.T, f *fakeCluster, times int) error {
	t.Helper()
	old := f.caBundle
	opts, inSwitch := f.options(ServingCA), false
	opts.Progress = func(e Event) {
		inSwitch = e.Step == "switch" && e.Type == EventHolding
		f.mustAnswer()
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

// TestSwitchedWhenBelieved: a front proxy's certificate is asked about again right before it is used, by whatever run that is.
func TestSwitchedWhenBelieved(t *testing.T) {
	for _, rotation := range []string{ProxyClient, FrontProxyCA} {
		for _, event := range []EventType{EventStarted, EventFinished} {
			f := newFake(t)
			b := f.before()
			step := "switch"
			if event == EventFinished {
				step = map[string]string{ProxyClient: "stage", FrontProxyCA: "trust"}[rotation]
			}
			f.runTo(rotation, step, event)
			f.now, f.probe = f.now.Add(72*time.Hour), cluster.NotTrusted
			_, err := Run(t.Context(), f.options(rotation))
			if _, ok := errors.AsType[*BlockedError](err); !ok || !f.cert(certs.FrontProxyClientDir).Equal(b.proxy) {
				t.Errorf("%s, %s of %s: got %v, want it blocked with the old certificate in use", rotation, event, step, err)
			}
			f.probe = ""
			if _, err := Run(t.Context(), f.options(rotation)); err != nil {
				t.Fatal(err)
			}
			f.checkEnd(b, rotation)
		}
	}
}

// TestAnotherReplacedIt: the second of two operators, whose copy of the directory is older than the rotation of the first, does not bring the old
// certificate back to kube-apiservers that both name.
func TestAnotherReplacedIt(t *testing.T) {
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
			t.Errorf("after %s, taken back: %v, want the certificate of the first one kept", step, err)
		}
	}
}

// TestWrongClock: by a clock that is wrong, certificates would be taken for expired. Nothing is changed.
func TestWrongClock(t *testing.T) {
	for skew, want := range map[time.Duration]string{6 * time.Minute: "6m0s ahead of", -48 * time.Hour: "48h0m0s behind", 4 * time.Minute: "", -4 * time.Minute: ""} {
		f := newFake(t)
		f.skew = skew
		_, err := Run(t.Context(), f.options(ServingCA))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || f.state() != nil) {
			t.Errorf("%s: got %v, want %q", skew, err, want)
		}
	}
}

// TestOtherAPIs: an API of somebody else that is not verified, or does not answer already, keeps nothing from being replaced.
func TestOtherAPIs(t *testing.T) {
	for _, rotation := range []string{ProxyClient, FrontProxyCA} {
		f := newFake(t)
		b := f.before()
		f.others = []certs.Service{
			{Name: "broken", Namespace: "elsewhere"}, {Name: "metrics", Namespace: "kube-system"},
			{Name: "far", Namespace: "elsewhere"}, {Name: "strange", Namespace: "elsewhere"},
		}
		var notes []string
		opts := f.options(rotation)
		opts.Progress = func(e Event) {
			if e.Type == EventNote {
				notes = append(notes, e.Message)
			}
		}
		state, err := Run(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		f.checkEnd(b, rotation)
		for i, want := range []string{
			"Service elsewhere/broken is left out", "Service kube-system/metrics are not asked what they make of the front proxy's certificate: expected an APIService with a caBundle",
			"Service elsewhere/far are not asked what they make of the front proxy's certificate: endpointslices is forbidden", "elsewhere/strange are not asked what they make of the front proxy's certificate: endpoint 10.0.0.1:443 finds the certificate in use Inconclusive",
		} {
			if len(notes) != 4 || !strings.Contains(notes[i], want) {
				t.Errorf("%s: got the notes %q, want 4, and one with %q", rotation, notes, want)
			}
		}
		want := map[string]Look{"elsewhere/broken": LookNone, "kube-system/metrics": LookAnswer, "elsewhere/far": LookAnswer, "elsewhere/strange": LookAnswer}
		if diff := cmp.Diff(want, state.Others); diff != "" {
			t.Errorf("%s: looks at others (-want +got):\n%s", rotation, diff)
		}
	}
}

// TestOtherAPIsLater: an API that others register while a rotation is under way, or one that stops answering, keeps a later run from nothing,
// unless the new certificate is of another CA and may be why.
func TestOtherAPIsLater(t *testing.T) {
	for _, tc := range []struct {
		rotation, after string
		blocked         bool
	}{{ProxyClient, "switch", false}, {FrontProxyCA, "trust", false}, {FrontProxyCA, "switch", true}} {
		f := newFake(t)
		b := f.before()
		f.runTo(tc.rotation, tc.after, EventObserved)
		f.others = []certs.Service{{Name: "broken", Namespace: "elsewhere"}, {Name: "metrics", Namespace: "kube-system"}}
		if _, err := Run(t.Context(), f.options(tc.rotation)); err != nil {
			t.Errorf("%s, others are registered after %s: %v", tc.rotation, tc.after, err)
		}
		f.checkEnd(b, tc.rotation)

		f = newFake(t)
		f.others = []certs.Service{{Name: "far", Namespace: "elsewhere"}}
		f.runTo(tc.rotation, tc.after, EventObserved)
		f.down = "v1.far"
		_, err := Run(t.Context(), f.options(tc.rotation))
		if _, blocked := errors.AsType[*BlockedError](err); blocked != tc.blocked || (err != nil) != tc.blocked || blocked && !strings.Contains(err.Error(), "v1.far") {
			t.Errorf("%s, another does not answer after %s: got %v, want blocked: %t", tc.rotation, tc.after, err, tc.blocked)
		}
	}
}
