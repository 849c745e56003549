// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestS13TrustUnreadableAtStart: a server that cannot learn whom to trust ends, or stays unready; it never serves. One that went
// on without would take everybody, or nobody, for the front proxy.
func TestS13TrustUnreadableAtStart(t *testing.T) {
	t.Parallel()
	cm := func(data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"kube-system","name":"` + trustName + `"},"data":{` + data + `}}`
	}
	for name, tc := range map[string]struct {
		script http.HandlerFunc
		log    string
		// waits tells that the server does not end, but stays unready.
		waits bool
	}{
		"403":               {reply(http.StatusForbidden, statusOf(http.StatusForbidden, metav1.StatusReasonForbidden)), "create rolebinding", false},
		"401":               {reply(http.StatusUnauthorized, statusOf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)), "does not accept the credentials", false},
		"404":               {reply(http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound)), trustName, false},
		"500":               {reply(http.StatusInternalServerError, statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError)), trustName, false},
		"no answer":         {hang, trustName, false},
		"broken connection": {reset, trustName, false},
		"garbage":           {reply(http.StatusOK, "<html>"), trustName, false},
		"empty":             {reply(http.StatusOK, cm("")), "the aggregation layer of this cluster is not configured", false},
		"no certificate":    {reply(http.StatusOK, cm(`"requestheader-client-ca-file":"none"`)), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t)
			r.script(trustPath, tc.script)
			s := start(t, r)
			s.neverServes(t)
			select {
			case <-s.done:
				if s.cmd.ProcessState.Success() {
					t.Error("exit code 0, want another")
				}
			default:
				if !tc.waits {
					t.Error("it still runs, want it to end")
				}
			}
			if !strings.Contains(s.log(), tc.log) {
				t.Errorf("want %q in the log:\n%s", tc.log, s.log())
			}
		})
	}
}

// TestS13TrustUnwatchable: the trust could be read once and then not be followed. Nobody is let in on what was read then.
func TestS13TrustUnwatchable(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	broken := reply(http.StatusForbidden, statusOf(http.StatusForbidden, metav1.StatusReasonForbidden))
	r.script(trustPath, func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/"+trustName) {
			m.serve(w, req)
			return
		}
		broken(w, req)
	})
	s := start(t, r)
	s.neverServes(t)

	// The rig works: with the rest answered, the same server gets ready.
	r.script(trustPath, m.serve)
	select {
	case <-s.done:
		t.Fatalf("the server ended, want it to wait:\n%s", s.log())
	default:
	}
	s.waitReady(t)
	s.get(t, frontProxy(t), forged()).want(t, "the front proxy", http.StatusOK)
}

// neverServes asks until the server ends, or has answered 20 requests of each kind. None may be let in, and it is never ready.
func (s *server) neverServes(t *testing.T) {
	t.Helper()
	proxy, deadline := frontProxy(t), time.After(patience)
	for answered := 0; answered < 20; {
		for _, path := range []string{protected, "/readyz"} {
			got := s.try(proxy, http.MethodGet, path, forged(), "")
			switch {
			case got.status == 0:
			case got.status < 400:
				t.Fatalf("GET %s: %s, want to be refused", path, got)
			default:
				answered++
			}
		}
		select {
		case <-s.done:
			return
		case <-deadline:
			t.Fatal("it neither ended nor answered")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
