// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
)

// TestRenew: Renew first finishes unfinished rotations and then rotates what is due, with the
// same observations as other rotations.
func TestRenew(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name    string
		prepare func(f *fakeCluster)
		actions []certs.Action
		changed map[string]bool
	}{
		{"nothing is due", func(*fakeCluster) {}, []certs.Action{certs.Kept, certs.Kept},
			map[string]bool{certs.ServingDir: false, certs.ServingCADir: false, certs.FrontProxyClientDir: false,
				certs.FrontProxyCADir: false}},
		{"leaves are due", func(f *fakeCluster) { f.now = f.now.Add(61 * day) },
			[]certs.Action{certs.Replaced, certs.Replaced},
			map[string]bool{certs.ServingDir: true, certs.ServingCADir: false, certs.FrontProxyClientDir: true,
				certs.FrontProxyCADir: false}},
		{"a rotation is under way", func(f *fakeCluster) {
			f.unseen = true
			if _, err := Run(f.t.Context(), f.options(ServingCA)); err == nil {
				f.t.Fatal("want an error")
			}
			f.unseen = false
		}, []certs.Action{certs.Replaced, certs.Kept, certs.Kept},
			map[string]bool{certs.ServingDir: true, certs.ServingCADir: true, certs.FrontProxyClientDir: false,
				certs.FrontProxyCADir: false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			b := f.before()
			tc.prepare(f)
			report, err := Renew(t.Context(), f.options(""))
			if err != nil {
				t.Fatal(err)
			}
			var actions []certs.Action
			for _, item := range report.Items {
				actions = append(actions, item.Action)
			}
			if diff := cmp.Diff(tc.actions, actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s\n%+v", diff, report.Items)
			}
			if diff := cmp.Diff(tc.changed, f.changes(b)); diff != "" {
				t.Errorf("replaced pairs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRenewTwoHosts: Renew decides by the key pairs that the kube-apiservers read, not by one in
// certgen init's directory that none of them reads.
func TestRenewTwoHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		dirs, due int // how many kube-apiservers read their own directories, and which one is due
		replaced  bool
	}{
		"the first is due":                 {2, 0, true},
		"the second is due":                {2, 1, true},
		"the only one is due":              {1, 1, true},
		"one that no kube-apiserver reads": {1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.addProxy()
			ca, err := certs.ReadCA(filepath.Join(f.dir, certs.FrontProxyCADir), func() time.Time { return begin })
			if err != nil {
				t.Fatal(err)
			}
			// It was issued an hour ago, so less than a third of its lifetime is left.
			short, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser, Lifetime: 70 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if err := short.Write(f.proxies[tc.due], f.bundleIn(f.proxies[tc.due])); err != nil {
				t.Fatal(err)
			}
			f.proxies = f.proxies[2-tc.dirs:]
			opts, before := f.options(""), f.proxyFiles()
			opts.FrontProxyClientDirs = f.proxies
			if report, err := Renew(t.Context(), opts); err != nil {
				t.Fatalf("got %+v and %v", report, err)
			}
			for i, now := range f.proxyFiles() {
				if (now != before[i]) != tc.replaced {
					t.Errorf("%s was replaced: %t, want %t", f.proxies[i], now != before[i], tc.replaced)
				}
			}
		})
	}
}

// TestRenewRefused: if a leaf cannot be renewed without manual action, because its CA has no key
// there or an injector maintains the caBundle, the other leaf is still renewed.
func TestRenewRefused(t *testing.T) {
	for want, refuse := range map[string]func(*fakeCluster){
		"expected the CA's key, found none": func(f *fakeCluster) { remove(f, certs.ServingCADir, certs.KeyFile) },
		"cert-manager owns the caBundle": func(f *fakeCluster) {
			f.register = func(a *apiregistrationv1.APIService) {
				a.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "demo/widgets"}
			}
		},
	} {
		f := newFake(t)
		b := f.before()
		refuse(f)
		f.now = f.now.Add(61 * 24 * time.Hour)
		report, err := Renew(t.Context(), f.options(""))
		if err == nil || !strings.Contains(err.Error(), want) || len(report.Items) != 1 ||
			report.Items[0].Action != certs.Replaced || f.cert(certs.FrontProxyClientDir).Equal(b.proxy) {
			t.Errorf("got %v and %+v, want %q of the serving certificate, and the front proxy's replaced",
				err, report, want)
		}
	}
}

// TestRenewBlocked: Renew reports a blocked rotation and still renews unrelated certificates.
func TestRenewBlocked(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare  func(*fakeCluster)
		replaced string // the set that is replaced
	}{
		"an endpoint does not reload": {func(f *fakeCluster) { f.stuckLeaf = f.cert(certs.ServingDir) },
			certs.FrontProxyClientDir},
		"another API does not respond after the switch to a new CA of the front proxy": {func(f *fakeCluster) {
			f.others = []certs.Service{{Name: "far", Namespace: "elsewhere"}}
			f.runTo(FrontProxyCA, "switch", EventObserved)
			f.down, f.farEndpoints = "v1.far", errors.New("endpointslices is forbidden")
		}, certs.ServingDir},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			tc.prepare(f)
			b := f.before()
			f.now = f.now.Add(61 * 24 * time.Hour)
			report, err := Renew(t.Context(), f.options(""))
			if _, ok := errors.AsType[*BlockedError](err); !ok || len(report.Items) != 1 ||
				report.Items[0].Path != f.store().Path(tc.replaced) {
				t.Errorf("got %v and %+v, want a BlockedError and %s replaced", err, report, tc.replaced)
			}
			if !f.changes(b)[tc.replaced] {
				t.Errorf("%s is the one from before", tc.replaced)
			}
		})
	}
}

// TestRenewFinishesBoth: Renew finishes two unfinished rotations, one of the serving certificates
// and one of the front proxy's, each in its direction. Neither changes what the other has
// stored.
func TestRenewFinishesBoth(t *testing.T) {
	for _, aborted := range []bool{false, true} {
		f := newFake(t)
		b := f.before()
		f.runTo(ServingCA, "switch", EventObserved)
		f.runTo(FrontProxyCA, "trust", EventObserved)
		if aborted {
			if _, err := Abort(t.Context(), f.options(FrontProxyCA)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Renew(t.Context(), f.options("")); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{certs.ServingDir: true, certs.ServingCADir: true, certs.FrontProxyClientDir: !aborted,
			certs.FrontProxyCADir: !aborted}
		if diff := cmp.Diff(want, f.changes(b)); diff != "" {
			t.Errorf("replaced key pairs, the front proxy's rotation aborted: %t (-want +got):\n%s", aborted, diff)
		}
		for _, rotation := range []string{ServingCA, FrontProxyCA} {
			if s, err := ReadState(f.store(), rotation); err != nil || s.Rotation != rotation || s.Unfinished() {
				t.Errorf("%s: got the record %+v, %v; want it ended", rotation, s, err)
			}
		}
	}
}

// TestRenewDamagedRecord: a record that is damaged or belongs to other certificates blocks only
// the certificates for which it is stored.
func TestRenewDamagedRecord(t *testing.T) {
	for _, tc := range []struct{ set, record, want, replaced string }{
		{servingState, "{", "expected the record of a rotation, found other content", certs.FrontProxyClientDir},
		{frontProxyState, "{", "expected the record of a rotation, found other content", certs.ServingDir},
		{servingState, recordOf(FrontProxyCA), `of these certificates, found one of "front-proxy-ca"`,
			certs.FrontProxyClientDir},
		{frontProxyState, recordOf(ServingCA), `of these certificates, found one of "serving-ca"`, certs.ServingDir},
	} {
		f := newFake(t)
		b := f.before()
		f.now = f.now.Add(61 * 24 * time.Hour)
		if err := f.store().Write(tc.set, certs.Files{StateFile: {Data: []byte(tc.record), Mode: 0o600}}); err != nil {
			t.Fatal(err)
		}
		_, err := Renew(t.Context(), f.options(""))
		if err == nil || strings.Count(err.Error(), tc.want) != 1 || !f.changes(b)[tc.replaced] {
			t.Errorf("%s, %s: got %v, %s replaced: %t; want one refusal, and it replaced", tc.set, tc.record, err,
				tc.replaced, f.changes(b)[tc.replaced])
		}
	}
}

func recordOf(rotation string) string {
	return fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "rotation": %q}`, certs.APIVersion, stateKind, rotation)
}

// TestFinishedMeanwhile: Renew does not begin a rotation again if another process finished it after
// Renew had read its state.
func TestFinishedMeanwhile(t *testing.T) {
	f := newFake(t)
	opts := f.options(ServingCA)
	opts.resumeOnly = true
	before := f.before()
	if state, err := Run(t.Context(), opts); state != nil || err != nil || f.changes(before)[certs.ServingCADir] {
		t.Errorf("got %+v and %v, want nothing done", state, err)
	}
}
