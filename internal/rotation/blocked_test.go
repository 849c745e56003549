// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestBlocked blocks rotations with faults, repairs the faults, and finishes the rotations.
// Requests of users succeed throughout.
func TestBlocked(t *testing.T) {
	failing := func(f *fakeCluster, when func() bool) {
		f.failResponse = func() error {
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
		{"no responses with the new serving CA alone", ServingCA, "distrust", "503", true, false,
			func(f *fakeCluster) { failing(f, func() bool { return len(f.second) == 1 && f.version > 2 }) }},
		{"an endpoint does not see the new proxy CA", FrontProxyCA, "trust", "expected the certificate", false, true,
			func(f *fakeCluster) { f.probe = cluster.NotTrusted }},
		{"an endpoint takes the proxy for a user", FrontProxyCA, "trust", "found AsUser", false, false,
			func(f *fakeCluster) { f.probe = cluster.AsUser }},
		{"a kube-apiserver still has the old proxy CA in its file", FrontProxyCA, "distrust-configmap",
			"contained the CA CN=front-proxy-ca", true, true,
			func(f *fakeCluster) { f.foreignCA = f.cert(certs.FrontProxyCADir) }},
		{"no responses with the new proxy CA alone", FrontProxyCA, "distrust-files", "503", true, false,
			func(f *fakeCluster) {
				failing(f, func() bool {
					s := f.state()
					return s != nil &&
						s.Steps[len(s.Steps)-1].Name == "distrust-files"
				})
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
			if blocked.Step != tc.step || !strings.Contains(blocked.Missing.Error(), tc.missing) ||
				(blocked.RolledBack == Distrust) != tc.tookBack {
				t.Errorf("blocked at %s, took back %s: %v; want %s, %t, %q", blocked.Step, blocked.RolledBack,
					blocked.Missing, tc.step, tc.tookBack, tc.missing)
			}
			if waited := blocked.Waited > 0; waited != tc.waits {
				t.Errorf("waited %s in all %s, want waiting: %t", blocked.Waited, f.now.Sub(began), tc.waits)
			}
			if s := f.state(); !s.Unfinished() || s.Blocked == "" {
				t.Errorf("the record does not say that it is blocked: %s", f.stateText())
			}
			f.mustRespond()

			f.stuckLeaf, f.unseen, f.probe, f.foreignCA, f.failResponse = nil, false, "", nil, nil
			if _, err := Run(t.Context(), f.options(tc.rotation)); err != nil {
				t.Fatalf("after it was mended: %v", err)
			}
			f.checkEnd(b, tc.rotation)
		})
	}
}

// TestOldCATrustedWhileServed: the old CA stays trusted while an endpoint serves the old
// certificate again. Requests of users succeed after every write, see fakeCluster.
func TestOldCATrustedWhileServed(t *testing.T) {
	f := newFake(t)
	b := f.before()
	opts := f.options(ServingCA)
	opts.Progress = func(e Event) {
		if e.Step == "distrust" && e.Type == EventStarted {
			f.stuckLeaf = b.serving
		}
	}
	_, err := Run(t.Context(), opts)
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Step != "distrust" ||
		!strings.Contains(err.Error(), "serves the certificate") {
		t.Errorf("got %v, want it blocked at distrust by the endpoint", err)
	}
	f.mustRespond()
	f.stuckLeaf = nil
	if _, err := Run(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, ServingCA)
}

// TestOldCATrustedWhileUnreachable: the old CA stays trusted while a server may come back with the
// old certificate. Nothing else is affected.
func TestOldCATrustedWhileUnreachable(t *testing.T) {
	f := newFake(t)
	old := f.cert(certs.ServingCADir)
	opts := f.options(ServingCA)
	opts.Progress = func(e Event) {
		if e.Step == "switch" && e.Type == EventObserved {
			f.cutOff = os.ErrDeadlineExceeded
		}
	}
	_, err := Run(t.Context(), opts)
	if _, ok := errors.AsType[*BlockedError](err); !ok || !strings.Contains(err.Error(), "10.0.0.2:443") ||
		!strings.Contains(err.Error(), "--port-forward") || !f.caBundle.Contains(old) {
		t.Errorf("got %v, want it blocked by the endpoint, and the old CA trusted", err)
	}
	// The endpoint comes back, and another one disappears during the distrust step, which waits
	// for it.
	f.cutOff = nil
	opts = f.options(ServingCA)
	opts.Progress = func(e Event) {
		switch {
		case e.Step == "distrust" && e.Type == EventStarted:
			f.cutOff = syscall.EHOSTUNREACH
		case e.Type == EventWaiting:
			f.cutOff = nil
		}
	}
	if _, err := Run(t.Context(), opts); err != nil || f.caBundle.Contains(old) {
		t.Errorf("after it came back: got %v, want the end", err)
	}
	f.cutOff = os.ErrDeadlineExceeded
	if _, err := Run(t.Context(), f.options(Serving)); err != nil {
		t.Errorf("a leaf of the same CA: got %v, want the end", err)
	}
}

// TestAbortAfterUndo: a rotation can be aborted after a distrust step was undone, because
// both CAs are trusted again.
func TestAbortAfterUndo(t *testing.T) {
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

// TestCAKeyIsNotCopied: the rotation of a leaf does not copy the key of its CA, which does not
// change.
func TestCAKeyIsNotCopied(t *testing.T) {
	for rotation, want := range map[string]bool{Serving: false, ServingCA: true} {
		f := newFake(t)
		f.runTo(rotation, "stage", EventFinished)
		files, err := f.store().Read(path.Join(servingState, "old", certs.ServingCADir))
		if err != nil {
			t.Fatal(err)
		}
		if _, copied := files[certs.KeyFile]; copied != want || len(files[certs.CertFile].Data) == 0 {
			t.Errorf("%s: the CA's key is copied %v, with %d files in all; want %v", rotation, copied, len(files), want)
		}
	}
}

// TestRejectedRotationLeavesNoRecord: a refused rotation leaves no record, so that another one can
// begin.
func TestRejectedRotationLeavesNoRecord(t *testing.T) {
	for _, tc := range []struct {
		name, rotation, want string
		fault                func(f *fakeCluster)
	}{
		{"another Service", Serving, "expected a certificate for other.demo.svc", nil},
		{"no CA key", Serving, "expected the CA's key, found none",
			func(f *fakeCluster) { remove(f, certs.ServingCADir, certs.KeyFile) }},
		{"no serving pair", ServingCA, "serving certificate and key, found none; issue a new one with certgen init",
			func(f *fakeCluster) { remove(f, certs.ServingDir, certs.CertFile) }},
		{"an expired pair", Serving, "expired at 2026-07-30T12:00:00Z; issue a new one with certgen init",
			func(f *fakeCluster) { f.now = f.now.Add(certs.LeafLifetime) }},
		{"another pair is served", ServingCA, "serves the certificate",
			func(f *fakeCluster) { f.stuckLeaf = f.cert(certs.ServingCADir) }},
		{"a name that is not allowed", ProxyClient, `to allow "front-proxy-client"`,
			func(f *fakeCluster) { f.names = `["other"]` }},
		{"a re-signed CA of users", ProxyClient, "has the key of", func(f *fakeCluster) {
			f.users = string(clustertest.RenamedPEM(f.t, readTestCA(f, certs.FrontProxyCADir), "another name"))
		}},
		{"a CA of users below the front proxy's", FrontProxyCA, "in requestheader-client-ca-file signed CN=users-ca@",
			func(f *fakeCluster) {
				f.users = string(clustertest.SignedPEM(f.t, clustertest.NewCA(f.t, "users-ca",
					x509.ExtKeyUsageClientAuth),
					readTestCA(f, certs.FrontProxyCADir)))
			}},
		{"CAs of users that cannot be parsed", ProxyClient, "malformed client-ca-file",
			func(f *fakeCluster) { f.users = "PEM" }},
		{"no permission for APIServices", ServingCA, "apiservices is forbidden",
			func(f *fakeCluster) { f.forbidden = errors.New("apiservices is forbidden") }},
		{"no permission for the ConfigMap", FrontProxyCA, "configmaps is forbidden",
			func(f *fakeCluster) { f.forbidden = errors.New("configmaps is forbidden") }},
		{"a CA that is not published", FrontProxyCA, "verify the client certificate",
			func(f *fakeCluster) { f.ofAnotherCA(true) }},
		{"a certificate of another CA", ProxyClient, "expected a certificate of the CA in",
			func(f *fakeCluster) { f.ofAnotherCA(false) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			opts := f.options(tc.rotation)
			if tc.fault == nil {
				opts.Service.Name = "other"
			} else {
				tc.fault(f)
			}
			f.publish() // possibly not called before
			before := f.world()
			_, err := Run(t.Context(), opts)
			if _, blocked := errors.AsType[*BlockedError](err); err == nil || blocked ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it refused with %q", err, tc.want)
			}
			if after := f.world(); after != before {
				t.Errorf("something has changed; before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestBlockedWithoutObserver: without an Observer, a rotation that blocks at the switch queries
// no cluster either.
func TestBlockedWithoutObserver(t *testing.T) {
	f := newFake(t)
	opts := f.options(ProxyClient)
	opts.Observer, opts.Hold, opts.afterWrite = nil, 0, nil
	opts.Progress = func(e Event) {
		if e.Step == "stage" && e.Type == EventFinished {
			f.ofAnotherCA(false)
		}
	}
	_, err := Run(t.Context(), opts)
	if _, blocked := errors.AsType[*BlockedError](err); !blocked ||
		!strings.Contains(err.Error(), "that was written after the rotation started") {
		t.Errorf("got %v, want it blocked", err)
	}
}

// TestPreflightRetries: before a rotation begins, transient errors, such as a restarting
// kube-apiserver, are retried for a short time. Other errors are returned immediately.
func TestPreflightRetries(t *testing.T) {
	for _, tc := range []struct {
		name     string
		err      error
		failures int
		refused  bool
		waited   time.Duration
	}{
		{"restarted", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), 3, false, 6 * time.Second},
		{"too long", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), 1000, true, preflightTimeout},
		{"busy", &cluster.StatusError{Status: 429}, 3, false, 6 * time.Second},
		{"forbidden", &cluster.StatusError{Status: 403}, 3, true, 0},
	} {
		for _, rotation := range Rotations() {
			t.Run(tc.name+"/"+rotation, func(t *testing.T) {
				f := newFake(t)
				left, began, waits := tc.failures, f.now, 0
				f.failResponse = func() error {
					if left--; left >= 0 {
						return tc.err
					}
					return nil
				}
				opts, waited := f.options(rotation), time.Duration(-1)
				opts.Progress = func(e Event) {
					if e.Step == "preflight" {
						waits++
					} else if waited < 0 {
						waited = f.now.Sub(began)
					}
				}
				_, err := Run(t.Context(), opts)
				if tc.refused {
					waited = f.now.Sub(began)
				}
				if refused, ok := errors.AsType[*certs.RefusedError](err); ok != tc.refused || err != nil && !ok ||
					ok && !strings.Contains(refused.Reason, tc.err.Error()) || tc.refused == (f.state() != nil) {
					t.Errorf("got %v and the record %s, want refused %t", err, f.stateText(), tc.refused)
				}
				if waited != tc.waited || waits != min(1, int(tc.waited)) {
					t.Errorf("it waited %s and reported it %d times, want %s", waited, waits, tc.waited)
				}
			})
		}
	}
}

// ofAnotherCA replaces the front-proxy certificate with one of another CA. If beside is true, it
// also stores that CA.
func (f *fakeCluster) ofAnotherCA(beside bool) {
	f.t.Helper()
	published := certs.Bundle{f.cert(certs.FrontProxyCADir)}
	ca, err := certs.NewCA(certs.CAOptions{Name: "other", Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		f.t.Fatal(err)
	}
	pair, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
	if err == nil {
		err = pair.Write(filepath.Join(f.dir, certs.FrontProxyClientDir), published)
	}
	if err == nil && beside {
		err = ca.Write(filepath.Join(f.dir, certs.FrontProxyCADir), nil)
	}
	if err != nil {
		f.t.Fatal(err)
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

// TestOneRotationAtATime: a rotation cannot begin while another one of the same certificates is
// unfinished.
func TestOneRotationAtATime(t *testing.T) {
	f := newFake(t)
	f.unseen = true
	if _, err := Run(t.Context(), f.options(ServingCA)); err == nil {
		t.Fatal("want an error")
	}
	_, err := Run(t.Context(), f.options(Serving))
	if _, ok := errors.AsType[*certs.RefusedError](err); !ok || !strings.Contains(err.Error(), "found serving-ca") {
		t.Errorf("got %v, want a refusal that names serving-ca", err)
	}
	if _, err := Abort(t.Context(), newFake(t).options(Serving)); err == nil ||
		!strings.Contains(err.Error(), "found none") {
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
			f.caBundle = certs.Bundle{b.servingCA} // another process overwrote it
		}
	}
	_, err := Run(t.Context(), opts)
	if _, ok := errors.AsType[*BlockedError](err); !ok ||
		!strings.Contains(err.Error(), "v1.widgets does not contain the 2 CAs that were applied") {
		t.Fatalf("got %v, want a BlockedError", err)
	}
	if !f.cert(certs.ServingDir).Equal(b.serving) {
		t.Error("the new certificate is in use")
	}
	f.mustRespond()
	if _, err := Abort(t.Context(), f.options(ServingCA)); err != nil {
		t.Fatal(err)
	}
	f.checkAborted(b)
}

// TestCheckBeforeSwitch: each run checks right before the switch whether the front proxy's
// certificate is accepted.
func TestCheckBeforeSwitch(t *testing.T) {
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
				t.Errorf("%s, %s of %s: got %v, want it blocked with the old certificate in use", rotation,
					event, step, err)
			}
			f.probe = ""
			if _, err := Run(t.Context(), f.options(rotation)); err != nil {
				t.Fatal(err)
			}
			f.checkEnd(b, rotation)
		}
	}
}

// TestWrongClock: a rotation with a wrong clock, which would make certificates look expired,
// returns an error and changes nothing.
func TestWrongClock(t *testing.T) {
	for skew, want := range map[time.Duration]string{6 * time.Minute: "6m0s ahead",
		-48 * time.Hour: "48h0m0s behind", 4 * time.Minute: "", -4 * time.Minute: ""} {
		f := newFake(t)
		f.skew = skew
		_, err := Run(t.Context(), f.options(ServingCA))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			f.state() != nil || f.wasLeased) {
			t.Errorf("%s: got %v, want %q", skew, err, want)
		}
	}
}
