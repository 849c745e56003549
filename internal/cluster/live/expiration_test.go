// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
	"example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/clustertest"
)

// TestExpirations: everything that expires is listed, and unreadable data is an error.
func TestExpirations(t *testing.T) {
	refused := func(f *fixture) {
		for _, served := range f.served {
			served[1] = cluster.Served{Endpoint: served[1].Endpoint, Err: errors.New("connection refused")}
		}
	}
	const configMap = "ConfigMap kube-system/extension-apiserver-authentication"
	all := []string{
		"endpoint 10.0.0.1:6443: serves", "endpoint 10.0.0.2:6443: serves", "Secret demo/serving: serves",
		"Secret demo/serving ca.crt: 1 CAs",
		"APIService v1.g.example.com: 1 CAs", "APIService v2.g.example.com: 1 CAs",
		configMap + " requestheader-client-ca-file: 1 CAs", configMap + " client-ca-file: 1 CAs",
	}
	without := func(i int, more ...string) []string {
		return append(append(append([]string{}, all[:i]...), all[i+1:]...), more...)
	}
	for name, tc := range map[string]struct {
		fault func(*fixture)
		want  []string
	}{
		"all is well":                       {func(*fixture) {}, all},
		"an endpoint that does not respond": {refused, without(1, "endpoint 10.0.0.2:6443: K12")},
		"one that is not ready either": {func(f *fixture) {
			f.endpoints[1].Ready = false
			refused(f)
		}, without(1)},
		"a refused certificate": {func(f *fixture) { f.served["v1.g.example.com"][1].Err = errors.New("expired") },
			all},
		"no caBundle": {func(f *fixture) { f.bundle("") },
			append(append(append([]string{}, all[:4]...), "APIService v1.g.example.com: 0 CAs"),
				append(all[5:8:8], "APIService v1.g.example.com: K02")...)},
		"text after a caBundle": {func(f *fixture) { f.bundle(string(f.servingCA.CertPEM) + "the end") }, all},
		"no ConfigMap": {func(f *fixture) { f.trust, f.trustErr = nil, errors.New("not found") },
			append(append([]string{}, all[:6]...), configMap+": P04")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.stored[0].object = "Secret demo/serving"
			for i := range f.endpoints { // as if they were dialled
				f.served["v1.g.example.com"][i].Endpoint = f.endpoints[i]
			}
			tc.fault(f)
			var got []string
			for _, h := range f.held() {
				switch {
				case len(h.Problems) > 0:
					got = append(got, h.Object+": "+h.Problems[0].ID)
				case h.Serving != nil:
					got = append(got, h.Object+": serves")
				default:
					got = append(got, fmt.Sprintf("%s: %d CAs", h.Object, len(h.Trusted)))
				}
				if h.Source == "" || len(h.Problems) == 0 && h.Fix == "" {
					t.Errorf("%s lacks its source or what to do", h.Object)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestExpirationsDials: the endpoint is dialled with the Service's name, and an expired
// certificate is returned too.
func TestExpirationsDials(t *testing.T) {
	f := newFixture(t)
	asked := make(chan string, 4)
	address := clustertest.ServeTLS(t, f.leaf, nil, func(name string) { asked <- name })
	c := clustertest.New(f.apiServices[:1], f.trust)
	c.EndpointAddresses = []string{address}
	later := clustertest.Now.Add(certs.LeafLifetime + time.Hour)
	c.Now = func() time.Time { return later }
	if _, err := Expirations(t.Context(), c, Options{Service: clustertest.Service},
		verify.ExpirationOptions{}); err == nil || !strings.Contains(err.Error(), "the clock of this machine") {
		t.Errorf("with a clock that is not kube-apiserver's: got %v, want the clock named", err)
	}
	c.Config.Transport = clustertest.Clock(later)
	r, err := Expirations(t.Context(), c, Options{Service: clustertest.Service, Dir: "not read"},
		verify.ExpirationOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name := <-asked; name != "widgets.demo.svc" {
		t.Errorf("it was dialled as %q, want widgets.demo.svc", name)
	}
	e := r.Certificates[0]
	if len(r.Certificates) != 1 || e.Name != "endpoint "+address || e.State != verify.StateExpired ||
		e.CASHA256 != certs.Fingerprint(f.servingCA.Certificate) {
		t.Errorf("got %+v, want the expired certificate and its CA", r.Certificates)
	}
	if len(r.Authorities) != 3 {
		t.Errorf("got %+v, want the CAs of the caBundle, of the front proxy and of users", r.Authorities)
	}
}
