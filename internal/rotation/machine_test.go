// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
)

// before contains the certificates before a rotation.
type before struct{ servingCA, serving, proxyCA, proxy *x509.Certificate }

func (f *fakeCluster) before() before {
	return before{f.cert(certs.ServingCADir), f.cert(certs.ServingDir), f.cert(certs.FrontProxyCADir),
		f.cert(certs.FrontProxyClientDir)}
}

// changes reports for each key pair whether it was replaced.
func (f *fakeCluster) changes(b before) map[string]bool {
	now := f.before()
	return map[string]bool{
		certs.ServingCADir: !now.servingCA.Equal(b.servingCA), certs.ServingDir: !now.serving.Equal(b.serving),
		certs.FrontProxyCADir: !now.proxyCA.Equal(b.proxyCA), certs.FrontProxyClientDir: !now.proxy.Equal(b.proxy),
	}
}

var changed = map[string]map[string]bool{
	Serving: {certs.ServingDir: true, certs.ServingCADir: false, certs.FrontProxyClientDir: false,
		certs.FrontProxyCADir: false},
	ServingCA: {certs.ServingDir: true, certs.ServingCADir: true, certs.FrontProxyClientDir: false,
		certs.FrontProxyCADir: false},
	ProxyClient: {certs.ServingDir: false, certs.ServingCADir: false, certs.FrontProxyClientDir: true,
		certs.FrontProxyCADir: false},
	FrontProxyCA: {certs.ServingDir: false, certs.ServingCADir: false, certs.FrontProxyClientDir: true,
		certs.FrontProxyCADir: true},
}

// checkEnd compares the state with the expected state at the end of the rotation.
func (f *fakeCluster) checkEnd(b before, rotation string) {
	f.t.Helper()
	if s := f.state(); s == nil || s.Outcome != Done {
		f.t.Fatalf("the rotation is not done: %s", f.stateText())
	}
	if diff := cmp.Diff(changed[rotation], f.changes(b)); diff != "" {
		f.t.Errorf("replaced pairs (-want +got):\n%s", diff)
	}
	servingCA, proxyCA := certs.Bundle{f.cert(certs.ServingCADir)}, certs.Bundle{f.cert(certs.FrontProxyCADir)}
	if !sameCAs(f.caBundle, servingCA) || !sameCAs(f.second, servingCA) {
		f.t.Errorf("the caBundles hold %d and %d CAs, want the CA in %s alone", len(f.caBundle), len(f.second),
			certs.ServingCADir)
	}
	published := proxyCA
	if f.other != nil {
		published = certs.Bundle{proxyCA[0], f.other}
		if got := f.bundleIn(f.proxies[1]); rotation == FrontProxyCA &&
			!slices.EqualFunc(got, published, (*x509.Certificate).Equal) {
			f.t.Errorf("%s holds %d CAs, want the one that signed the certificate, then the other one",
				f.proxies[1], len(got))
		}
	}
	if !sameCAs(f.publish(), published) {
		f.t.Errorf("the ConfigMap holds %d CAs, want the CA in %s alone", len(f.trusted), certs.FrontProxyCADir)
	}
	for leaf, ca := range map[string]certs.Bundle{certs.ServingDir: servingCA, certs.FrontProxyClientDir: proxyCA} {
		if _, err := certs.ReadPair(f.storeOf(leaf), leaf); err != nil {
			f.t.Error(err)
		}
		files, err := f.storeOf(leaf).Read(leaf)
		if err != nil {
			f.t.Fatal(err)
		}
		if bundle, err := certs.ParseBundle(files[certs.BundleFile].Data); err != nil || !sameCAs(bundle, ca) {
			f.t.Errorf("%s/%s: %v, %d CAs; want its CA alone", leaf, certs.BundleFile, err, len(bundle))
		}
	}
	for _, pair := range []string{certs.ServingDir, certs.ServingCADir, certs.FrontProxyClientDir,
		certs.FrontProxyCADir} {
		for _, set := range []string{path.Join(servingState, "new", pair), path.Join(servingState, "old", pair),
			path.Join(frontProxyState, "new", pair), path.Join(frontProxyState, "old", pair)} {
			if files, err := f.store().Read(set); err != nil || files != nil {
				f.t.Errorf("%s is still there, with keys (%v)", set, err)
			}
		}
	}
	if f.kubeadm {
		if ca, err := certs.ReadKeyPair(filepath.Join(f.dir, "front-proxy-ca.crt")); err != nil ||
			!ca.Certificate.Equal(proxyCA[0]) {
			f.t.Errorf("kubeadm's front-proxy-ca.crt and front-proxy-ca.key are not the CA: %v", err)
		}
	}
	old, _ := filepath.Glob(filepath.Join(f.dir, "*.old-*"))
	want := 0
	if rotation == ServingCA && f.secrets.Cluster == nil || rotation == FrontProxyCA {
		want = 1
	}
	if len(old) != want {
		f.t.Errorf("old CAs %q, want %d", old, want)
	}
	f.mustRespond()
}

// TestRotations: requests of users succeed at each event of each rotation.
func TestRotations(t *testing.T) {
	for _, tc := range rotationCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rotation := tc.rotation
			f := tc.fake(t)
			b := f.before()
			var steps []string
			opts := f.options(rotation)
			opts.Progress = func(e Event) {
				f.mustRespond()
				if e.Type == EventFinished {
					steps = append(steps, e.Step)
				}
			}
			began := f.now
			if _, err := Run(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			f.checkEnd(b, rotation)
			plan := Plan(rotation)
			var want []string
			var holds time.Duration
			for _, s := range plan {
				want = append(want, s.Name)
				if s.Holds {
					holds += f.hold
				}
			}
			if rotation == FrontProxyCA {
				holds += opts.Settle
			}
			if diff := cmp.Diff(want, steps); diff != "" {
				t.Errorf("steps (-plan +done):\n%s", diff)
			}
			if took := f.now.Sub(began); took < holds {
				t.Errorf("it took %s, but the holds alone are %s", took, holds)
			}
		})
	}
}

// TestKilledAnywhere: a rotation that is killed at any of its calls and events finishes when it
// runs again.
func TestKilledAnywhere(t *testing.T) {
	for _, tc := range rotationCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rotation := tc.rotation
			points := cuts(tc.fake(t), rotation)
			for _, cut := range points {
				f := tc.fake(t)
				b := f.before()
				f.left = cut
				if err, ended := f.runUntilKilled(Run, rotation); ended {
					t.Fatalf("cut %d: not killed: %v", cut, err)
				}
				f.left = -1
				f.mustRespond()
				// A rotation that was killed at its very end is done, so another run would begin
				// a new one.
				if s := f.state(); s == nil || s.Unfinished() {
					if _, err := Run(t.Context(), f.options(rotation)); err != nil {
						t.Fatalf("cut %d: %v", cut, err)
					}
				}
				f.checkEnd(b, rotation)
				if t.Failed() {
					t.Fatalf("cut %d: %s", cut, f.stateText())
				}
			}
		})
	}
}

// TestKilledAndAborted: a rotation that is killed at any point can be aborted, unless the old CA
// is distrusted.
func TestKilledAndAborted(t *testing.T) {
	for _, tc := range rotationCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rotation := tc.rotation
			points := cuts(tc.fake(t), rotation)
			t.Logf("%d points", len(points))
			aborted, refused := 0, 0
			for _, cut := range points {
				f := tc.fake(t)
				b, files := f.before(), f.proxyFiles()
				f.left = cut
				_, _ = f.runUntilKilled(Run, rotation)
				f.left = -1
				s := f.state()
				if !s.Unfinished() {
					continue
				}
				_, err := Abort(t.Context(), f.options(rotation))
				if late(s) {
					if _, ok := errors.AsType[*certs.RefusedError](err); !ok {
						t.Fatalf("cut %d: got %v, want a refusal in state %s", cut, err, f.stateText())
					}
					refused++
					continue
				}
				if err != nil {
					t.Fatalf("cut %d: %v", cut, err)
				}
				f.checkAborted(b)
				if now := f.proxyFiles(); !slices.Equal(now, files) {
					t.Error("the files of the kube-apiserver are not as they were, byte for byte")
				}
				if aborted++; t.Failed() {
					t.Fatalf("cut %d: %s", cut, f.stateText())
				}
			}
			if aborted == 0 || refused == 0 {
				t.Errorf("%d aborted, %d refused, want some of each", aborted, refused)
			}
		})
	}
}

func (f *fakeCluster) checkAborted(b before) {
	f.t.Helper()
	if s := f.state(); s.Outcome != Aborted {
		f.t.Errorf("outcome %q, want %q", s.Outcome, Aborted)
	}
	for name, replaced := range f.changes(b) {
		if replaced {
			f.t.Errorf("%s is not the one from before", name)
		}
	}
	if drafts, err := filepath.Glob(filepath.Join(f.dir, ".certgen-*-*")); err != nil || len(drafts) > 0 {
		f.t.Errorf("%v: there are still %q", err, drafts)
	}
	published := certs.Bundle{b.proxyCA}
	if f.other != nil {
		published = append(published, f.other)
	}
	if !sameCAs(f.caBundle, certs.Bundle{b.servingCA}) || !sameCAs(f.second, f.caBundle) ||
		!sameCAs(f.publish(), published) {
		f.t.Errorf("trust is not as before: %d CAs in the caBundle, %d in the ConfigMap", len(f.caBundle),
			len(f.trusted))
	}
	f.mustRespond()
}
