// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// TestTwoHosts kills the rotations of the front proxy at every write, with two kube-apiservers
// that read their own files. It then finishes or aborts them.
func TestTwoHosts(t *testing.T) {
	for _, rotation := range []string{ProxyClient, FrontProxyCA} {
		t.Run(rotation, func(t *testing.T) {
			t.Parallel()
			twoHosts := func() *fakeCluster {
				f := newFake(t)
				f.addProxy()
				expired, err := certs.NewCA(certs.CAOptions{Name: "expired", Usage: x509.ExtKeyUsageClientAuth,
					Now: func() time.Time { return f.now.Add(-2 * certs.CALifetime) }})
				if err != nil {
					t.Fatal(err)
				}
				// Like some files of kubeadm: with a previous CA, and with text.
				f.appendTo(filepath.Join(f.proxies[1], certs.BundleFile), "the CA before\n"+string(expired.CertPEM))
				return f
			}
			apart := 0       // number of times when only one of them had the new certificate
			tooLate := false // whether an abort is no longer possible
			for _, cut := range cuts(twoHosts(), rotation) {
				for _, abort := range []bool{false, true} {
					if abort && tooLate {
						continue
					}
					f := twoHosts()
					b, files := f.before(), f.proxyFiles()
					f.left = cut
					if err, ended := f.runUntilKilled(Run, rotation); ended {
						t.Fatalf("cut %d: not killed: %v", cut, err)
					}
					f.left = -1
					f.mustRespond()
					if now := f.proxyFiles(); (now[0] == files[0]) != (now[1] == files[1]) {
						apart++
					}
					state := f.state()
					tooLate = state != nil && late(state)
					switch {
					case abort && state.Unfinished() && !tooLate:
						f.mustAbort(rotation)
						f.checkAborted(b)
						if now := f.proxyFiles(); !slices.Equal(now, files) {
							t.Errorf("the files of the hosts are not as they were, byte for byte")
						}
					case abort:
					case state == nil || state.Unfinished():
						if _, err := Run(t.Context(), f.options(rotation)); err != nil {
							t.Fatalf("cut %d: %v", cut, err)
						}
						fallthrough
					default:
						f.checkEnd(b, rotation)
						f.sameOnBoth()
					}
					if t.Failed() {
						t.Fatalf("cut %d: %s", cut, f.stateText())
					}
				}
			}
			if apart == 0 {
				t.Error("it was never killed between the two hosts")
			}
		})
	}
}

// late reports whether a rotation can no longer be aborted.
func late(s *State) bool {
	return slices.ContainsFunc(s.Steps, func(r StepState) bool {
		return strings.HasPrefix(r.Name, "distrust") ||
			r.Name == "finish"
	})
}

func (f *fakeCluster) mustAbort(rotation string) {
	f.t.Helper()
	if _, err := Abort(f.t.Context(), f.options(rotation)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeCluster) sameOnBoth() {
	f.t.Helper()
	one, oneErr := certs.ReadCertificate(certs.Dir(f.proxies[0]), "")
	two, twoErr := certs.ReadCertificate(certs.Dir(f.proxies[1]), "")
	if err := errors.Join(oneErr, twoErr); err != nil || !one.Equal(two) {
		f.t.Errorf("the hosts have different certificates: %v", err)
	}
}

// TestHostsIncomplete: Run and Abort return an error if they would omit one of the hosts.
func TestHostsIncomplete(t *testing.T) {
	f := newFake(t)
	f.addProxy()
	f.runTo(FrontProxyCA, "trust", EventObserved)
	opts := f.options(FrontProxyCA)
	opts.FrontProxyClientDirs = opts.FrontProxyClientDirs[:1]
	for name, do := range map[string]func() error{
		"run":   func() error { _, err := Run(t.Context(), opts); return err },
		"abort": func() error { _, err := Abort(t.Context(), opts); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "host-2") ||
			!strings.Contains(err.Error(), "set the same value") {
			t.Errorf("%s with one of two directories: got %v, want both named", name, err)
		}
	}
	f.mustAbort(FrontProxyCA)

	ca, err := certs.ReadCA(filepath.Join(f.dir, certs.FrontProxyCADir), func() time.Time { return begin })
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.IssueClient(certs.ClientOptions{User: "other-proxy"})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(f.proxies[1], certs.Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
	f.names = `["front-proxy-client", "other-proxy"]`
	if _, err := Run(t.Context(), f.options(ProxyClient)); err == nil ||
		!strings.Contains(err.Error(), "expected the subject CN=front-proxy-client") {
		t.Errorf("certificates of two names: got %v, want it refused", err)
	}
}

// TestFirstCASigned: the first CA in the file signed the leaf, because kubeadm expects that for
// front-proxy-client.crt.
func TestFirstCASigned(t *testing.T) {
	for _, rotation := range []string{ServingCA, FrontProxyCA} {
		f := newFake(t)
		dirs := f.proxies
		if rotation == ServingCA {
			dirs = []string{filepath.Join(f.dir, certs.ServingDir)}
		} else {
			f.addProxy()
			dirs = f.proxies
		}
		most := 0
		opts := f.options(rotation)
		opts.Progress = func(e Event) {
			for _, dir := range dirs[:1] {
				leaf, err := certs.ReadCertificate(certs.Dir(dir), "")
				if err != nil {
					t.Fatal(err)
				}
				bundle := f.bundleIn(dir)
				if most = max(most, len(bundle)); leaf.CheckSignatureFrom(bundle[0]) != nil {
					t.Errorf("%s %s %s: the first of %d CAs in %s did not sign its certificate", rotation, e.Step,
						e.Type, len(bundle), dir)
				}
			}
		}
		if _, err := Run(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if most != 2 {
			t.Errorf("%s: there were %d CAs at most, want old and new together", rotation, most)
		}
	}
}

// TestSlowReload: the old CA is distrusted only after the last kube-apiserver presents the new
// certificate. If that cannot be observed, the hold is extended beyond the reload time,
// regardless of the options.
func TestSlowReload(t *testing.T) {
	f := newFake(t)
	f.addProxy()
	b := f.before()
	old, err := certs.ReadCertificate(certs.Dir(f.proxies[1]), "")
	if err != nil {
		t.Fatal(err)
	}
	f.slow = map[string]*loaded{f.proxies[1]: {cert: old}}
	f.noReview = true
	if _, err := Run(t.Context(), f.options(FrontProxyCA)); err != nil {
		t.Fatal(err)
	}
	f.checkEnd(b, FrontProxyCA)
	if f.slow[f.proxies[1]].cert.Equal(old) {
		t.Error("the last one presents the old certificate at the end")
	}
}

// TestNeverReloaded: a kube-apiserver that keeps presenting the old certificate blocks the
// rotation before its CA is distrusted, and the error names it.
func TestNeverReloaded(t *testing.T) {
	f := newFake(t)
	f.addProxy()
	old, err := certs.ReadCertificate(certs.Dir(f.proxies[1]), "")
	if err != nil {
		t.Fatal(err)
	}
	f.slow = map[string]*loaded{f.proxies[1]: {cert: old, never: true}}
	_, err = Run(t.Context(), f.options(FrontProxyCA))
	if _, ok := errors.AsType[*BlockedError](err); !ok ||
		!strings.Contains(err.Error(),
			"https://10.0.1.2 still presents the front proxy's certificate sha256:"+certs.Fingerprint(old)[:16]) {
		t.Fatalf("got %v, want the kube-apiserver named that did not reload", err)
	}
	f.mustRespond()
	f.mustAbort(FrontProxyCA)
	f.mustRespond()
	// If the certificate cannot be observed, a note reports that the hold is used instead.
	f = newFake(t)
	f.noReview = true
	opts, notes := f.options(ProxyClient), ""
	opts.Progress = func(e Event) {
		if e.Type == EventNote {
			notes += e.Message
		}
	}
	if _, err := Run(t.Context(), opts); err != nil || !strings.Contains(notes, "does not serve IdentityReview") {
		t.Errorf("without IdentityReview: %v, notes %q", err, notes)
	}
}

// TestCountsKubeAPIServers: Run returns an error before any change if there are more
// kube-apiservers than URLs or directories.
func TestCountsKubeAPIServers(t *testing.T) {
	f := newFake(t)
	f.identities = 3
	if _, err := Run(t.Context(), f.options(ProxyClient)); err == nil ||
		!strings.Contains(err.Error(), "3 kube-apiservers have renewed their identity Lease") || f.state() != nil {
		t.Errorf("behind a load balancer: got %v, want it refused", err)
	}
	f = newFake(t)
	f.addProxy()
	opts := f.options(FrontProxyCA)
	opts.FrontProxyClientDirs = append(opts.FrontProxyClientDirs, filepath.Join(f.dir, certs.FrontProxyClientDir))
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "there are 2 kube-apiservers") ||
		f.state() != nil {
		t.Errorf("another number of directories: got %v, want it refused", err)
	}
	// With only the directory of the first, the second kube-apiserver presents another
	// certificate, or its certificate cannot be observed.
	opts.FrontProxyClientDirs = nil
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "https://10.0.1.2 still presents") ||
		!strings.Contains(err.Error(), "name the directory of each") || f.state() != nil {
		t.Errorf("one directory of two: got %v, want it refused", err)
	}
	opts.Rotation = ProxyClient
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "https://10.0.1.2 still presents") ||
		!strings.Contains(err.Error(), "name the available directories") || f.state() != nil {
		t.Errorf("one directory of two, and the same CA: got %v, want it refused", err)
	}
	opts.Rotation, f.noReview = FrontProxyCA, true
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(),
		"does not serve IdentityReview to this user; name the directory of each") || f.state() != nil {
		t.Errorf("one directory, and no hint whose: got %v, want it refused", err)
	}
}

// TestHostByHost: certificates of the same CA can be replaced one host at a time, even if the
// host's directory is the default one.
func TestHostByHost(t *testing.T) {
	f := newFake(t)
	f.addProxy()
	before := []*x509.Certificate{f.cert(certs.FrontProxyClientDir), f.cert(f.proxies[1])}
	opts := f.options(ProxyClient)
	opts.FrontProxyClientDirs = []string{filepath.Join(f.dir, certs.FrontProxyClientDir)}
	if _, err := Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if f.cert(certs.FrontProxyClientDir).Equal(before[0]) || !f.cert(f.proxies[1]).Equal(before[1]) {
		t.Error("want another certificate on the first host alone")
	}
	// Resuming without the directory would wait for the other host.
	ctx, cut := context.WithCancel(t.Context())
	opts.Progress = func(Event) { cut() }
	if _, err := Run(ctx, opts); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want it interrupted", err)
	}
	opts.FrontProxyClientDirs, opts.Progress = nil, nil
	if _, err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "set the same value") {
		t.Errorf("without the directory: got %v, want it refused", err)
	}
	// An empty list, as from an unset script variable, is not a directory.
	opts.FrontProxyClientDirs = []string{}
	if _, err := Abort(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "set the same value") {
		t.Errorf("without a directory: got %v, want it refused", err)
	}
}

// TestKubeAPIServerJoins: if a kube-apiserver joins while the front proxy's CA is replaced, it
// has a certificate of the old CA, which therefore stays trusted.
func TestKubeAPIServerJoins(t *testing.T) {
	for _, after := range []string{"trust", "switch"} {
		f := newFake(t)
		old := f.cert(certs.FrontProxyCADir)
		opts := f.options(FrontProxyCA)
		opts.Progress = func(e Event) {
			if e.Step == after && e.Type == EventFinished {
				f.identities = 3
			}
		}
		_, err := Run(t.Context(), opts)
		if _, ok := errors.AsType[*BlockedError](err); !ok ||
			!strings.Contains(err.Error(), "3 kube-apiservers have renewed") || !f.trusted.Contains(old) {
			t.Errorf("after %s: got %v, want it blocked, and the old CA trusted", after, err)
		}
		f.mustAbort(FrontProxyCA)
	}
}

// TestRestoreInConfigMap: if requests fail after the old CA was removed, certgen restores it
// immediately.
func TestRestoreInConfigMap(t *testing.T) {
	f := newFake(t)
	old := f.cert(certs.FrontProxyCADir)
	f.failResponse = func() error {
		if len(f.trusted) > 0 && !f.trusted.Contains(old) {
			return &cluster.StatusError{URL: "https://10.0.1.1", Status: 503, Text: "distrusted"}
		}
		return nil
	}
	opts, back := f.options(FrontProxyCA), false
	opts.Progress = func(e Event) {
		if e.Step == "distrust-configmap" && e.Type == EventUndone {
			back = f.trusted.Contains(old)
		}
	}
	_, err := Run(t.Context(), opts)
	if _, ok := errors.AsType[*BlockedError](err); !ok || !back {
		t.Errorf("got %v, the CA is back: %t; want it blocked, and back", err, back)
	}
	f.mustRespond()
}

// TestAbortRemovesFromConfigMap: Abort removes the new CA again if a kube-apiserver that has not
// reread its file restores it. If the CA remains, Abort reports it.
func TestAbortRemovesFromConfigMap(t *testing.T) {
	for name, tc := range map[string]struct {
		back    time.Duration
		blocked bool
	}{"it reads it in time": {30 * time.Second, false}, "it never does": {24 * time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			b := f.before()
			f.runTo(FrontProxyCA, "trust", EventObserved)
			next := f.publish().Without(b.proxyCA)
			if len(next) != 1 {
				t.Fatalf("got %d new CAs in the ConfigMap, want 1", len(next))
			}
			f.restarted, f.until = next, f.now.Add(tc.back)
			_, err := Abort(t.Context(), f.options(FrontProxyCA))
			if !tc.blocked {
				if err != nil {
					t.Fatal(err)
				}
				f.checkAborted(b)
				return
			}
			_, blocked := errors.AsType[*BlockedError](err)
			if !blocked || !strings.Contains(err.Error(), certs.Fingerprint(next[0])[:16]) ||
				!strings.Contains(err.Error(), "--abort") {
				t.Fatalf("got %v, want the CA named that remains, and what to do", err)
			}
			f.mustRespond()
			f.until = time.Time{}
			f.mustAbort(FrontProxyCA)
			f.checkAborted(b)
		})
	}
}

// TestLostResponses: if the response to a successful write is lost, the rotation repeats the write
// and finishes normally.
func TestLostResponses(t *testing.T) {
	for rotation, writes := range map[string]int{ServingCA: 4, FrontProxyCA: 1} {
		for write := 1; write <= writes; write++ {
			f := newFake(t)
			b := f.before()
			f.lostResponse = write
			_, err := Run(t.Context(), f.options(rotation))
			if err != nil {
				t.Fatalf("%s, write %d: %v", rotation, write, err)
			}
			f.checkEnd(b, rotation)
			if f.lostResponse > 0 {
				t.Errorf("%s: there were fewer than %d writes", rotation, write)
			}
		}
	}
}
