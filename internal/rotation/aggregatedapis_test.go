// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster"
)

// TestThirdPartyAPIs: a third-party API that cannot be verified or does not respond does not
// prevent the replacement of a certificate.
func TestThirdPartyAPIs(t *testing.T) {
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
			"Service elsewhere/broken is not checked, because its API already does not respond",
			"Service kube-system/metrics are not probed with the front proxy's certificate: " +
				"expected an APIService with a caBundle",
			"Service elsewhere/far are not probed with the front proxy's certificate: endpointslices is " +
				"forbidden", "elsewhere/strange are not probed with the front proxy's certificate: " +
				"endpoint 10.0.0.1:443 reports the certificate in use as Inconclusive",
		} {
			if len(notes) != 4 || !strings.Contains(notes[i], want) {
				t.Errorf("%s: got the notes %q, want 4, and one with %q", rotation, notes, want)
			}
		}
		want := map[string]Check{"elsewhere/broken": CheckNone, "kube-system/metrics": CheckByResponse,
			"elsewhere/far": CheckByResponse, "elsewhere/strange": CheckByResponse}
		if diff := cmp.Diff(want, state.Others); diff != "" {
			t.Errorf("%s: looks at others (-want +got):\n%s", rotation, diff)
		}
	}
}

// TestThirdPartyAPIRejectsCA: if an API that could not be probed before does not accept the new CA,
// the old certificate is restored immediately.
func TestThirdPartyAPIRejectsCA(t *testing.T) {
	f := newFake(t)
	b := f.before()
	f.others = []certs.Service{{Name: "metrics", Namespace: "kube-system"}}
	f.accepts = []*x509.Certificate{b.proxy}
	_, err := Run(t.Context(), f.options(FrontProxyCA))
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok || blocked.Waited > 0 || blocked.RolledBack != Identity ||
		!f.cert(certs.FrontProxyClientDir).Equal(b.proxy) {
		t.Fatalf("got %v, want it blocked at once, and the old certificate in use", err)
	}
	f.mustAbort(FrontProxyCA)
	f.checkAborted(b)

	// If kube-apiserver itself rejects certgen's user, no API is the cause.
	f = newFake(t)
	f.others = []certs.Service{{Name: "metrics", Namespace: "kube-system"}}
	old, refusals := f.cert(certs.FrontProxyClientDir), 0
	f.failResponse = func() error {
		if cert, err := f.inUse(f.proxies[0]); refusals < 20 && err == nil && !cert.Equal(old) {
			refusals++
			return &cluster.StatusError{URL: "https://10.0.1.1", Status: http.StatusUnauthorized, Text: "Unauthorized"}
		}
		return nil
	}
	if _, err := Run(t.Context(), f.options(FrontProxyCA)); err != nil || refusals < 20 {
		t.Errorf("after %d refusals of kube-apiserver's own: got %v, want it waited for", refusals, err)
	}
}

// TestRestartExcludesNoAPI: if a run resumes a rotation while a kube-apiserver restarts, no API
// responds. certgen does not exclude one for this reason.
func TestRestartExcludesNoAPI(t *testing.T) {
	f := newFake(t)
	f.others = []certs.Service{{Name: "far", Namespace: "elsewhere"}}
	f.runTo(FrontProxyCA, "trust", EventObserved)
	failures := 3
	f.failResponse = func() error {
		if failures--; failures >= 0 {
			return errors.New("connection refused")
		}
		return nil
	}
	state, err := Run(t.Context(), f.options(FrontProxyCA))
	if err != nil || state.Others["elsewhere/far"] != CheckByResponse {
		t.Errorf("got %v and the checks %v, want requests to the API", err, state.Others)
	}
}

// TestThirdPartyAPIsLater: a third-party API that is registered during a rotation, or stops
// responding, does not block a later run, unless the new certificate is of another CA and may be
// the cause.
func TestThirdPartyAPIsLater(t *testing.T) {
	forbidden := errors.New("endpointslices is forbidden")
	for _, tc := range []struct {
		rotation, after string
		endpoints       error // of the API that does not respond; nil if it has none
		blocked         bool
	}{
		{ProxyClient, "switch", forbidden, false}, {FrontProxyCA, "trust", forbidden, false},
		{FrontProxyCA, "switch", forbidden, true},
		{FrontProxyCA, "switch", nil, false}, {FrontProxyCA, "switch",
			apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, "far"), false},
	} {
		f := newFake(t)
		b := f.before()
		f.runTo(tc.rotation, tc.after, EventObserved)
		f.others = []certs.Service{{Name: "broken", Namespace: "elsewhere"},
			{Name: "metrics", Namespace: "kube-system"}}
		if _, err := Run(t.Context(), f.options(tc.rotation)); err != nil {
			t.Errorf("%s, others are registered after %s: %v", tc.rotation, tc.after, err)
		}
		f.checkEnd(b, tc.rotation)

		f = newFake(t)
		b = f.before()
		f.others = []certs.Service{{Name: "far", Namespace: "elsewhere"}}
		f.runTo(tc.rotation, tc.after, EventObserved)
		f.down = "v1.far"
		f.farEndpoints = tc.endpoints
		_, err := Run(t.Context(), f.options(tc.rotation))
		if _, blocked := errors.AsType[*BlockedError](err); blocked != tc.blocked || (err != nil) != tc.blocked ||
			blocked && !strings.Contains(err.Error(), "v1.far") {
			t.Errorf("%s, another does not respond after %s, endpoints %v: got %v, want blocked: %t", tc.rotation,
				tc.after, tc.endpoints, err, tc.blocked)
		}
		if !tc.blocked {
			continue
		}
		if _, err := Abort(t.Context(), f.options(tc.rotation)); err != nil {
			t.Errorf("%s is undone while another does not respond: %v", tc.rotation, err)
		}
		f.checkAborted(b)
	}
}

// TestThirdPartyAPIFails: a third-party API that stops responding during a run does not block the
// replacement of the front-proxy certificate if the new certificate cannot be the cause. That is
// the case if it has the same CA and the same name, and is not in use yet or was accepted.
func TestThirdPartyAPIFails(t *testing.T) {
	for _, tc := range []struct {
		rotation, step string
		told           bool                // its endpoints report whether they accept a certificate
		probe          cluster.ProbeResult // of the new certificate; empty: no response
		blocked        bool
	}{
		{ProxyClient, "stage", true, "", false}, {ProxyClient, "switch", true, "", false},
		{ProxyClient, "stage", true, cluster.NotTrusted, true},
		{ProxyClient, "switch", false, "", true}, {FrontProxyCA, "trust", true, "", true},
		{FrontProxyCA, "switch", true, "", true},
	} {
		f := newFake(t)
		b := f.before()
		f.hasFar = tc.told
		f.others = []certs.Service{{Name: "far", Namespace: "elsewhere"}}
		opts := f.options(tc.rotation)
		progress := opts.Progress
		opts.Progress = func(e Event) {
			progress(e)
			if e.Step != tc.step || e.Type != EventStarted {
				return
			}
			if tc.probe == "" {
				f.down = "v1.far"
			}
			f.farProbe = tc.probe
		}
		state, err := Run(t.Context(), opts)
		if _, blocked := errors.AsType[*BlockedError](err); blocked != tc.blocked || (err != nil) != tc.blocked {
			t.Errorf("%s, another fails in %s, probe %q: got %v, want blocked: %t", tc.rotation, tc.step, tc.probe,
				err, tc.blocked)
		}
		if tc.blocked {
			continue
		}
		f.checkEnd(b, tc.rotation)
		if got := state.Others["elsewhere/far"]; got != CheckNone {
			t.Errorf("%s, another fails in %s: it is looked at in the way %q, want it left out",
				tc.rotation, tc.step, got)
		}
	}
}
