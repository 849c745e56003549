// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"example.com/extension-apiserver/internal/certs"
)

// TestS09UID checks that the UID header counts only if the cluster's ConfigMap contains it
// (KEP-4862). Otherwise kube-apiserver does not remove the header from its clients' requests, so
// the clients could choose it.
func TestS09UID(t *testing.T) {
	t.Parallel()
	const key = "requestheader-uid-headers"
	r := newRelay(t)
	m := newTrustMap(t, r)
	data := m.data()
	delete(data, key)
	m.set(data)
	s := start(t, r)
	s.waitReady(t)
	proxy := frontProxy(t)
	header := http.Header{"X-Remote-User": {"ann"}, "X-Remote-Uid": {"42"}}
	s.wantUser(t, proxy, header, "ann")

	data[key] = `["X-Remote-Uid"]`
	m.set(data)
	shared.Eventually(t, "the UID to count", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, proxy, header, "ann uid=42") })
	delete(data, key)
	m.set(data)
	shared.Eventually(t, "the UID to count no longer", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, proxy, header, "ann") })
}

// reads returns an error unless the server reads the user want from a request. An empty want means
// 401.
func (s *server) reads(t *testing.T, cert *tls.Certificate, header http.Header, want string) error {
	t.Helper()
	review, response := s.review(t, cert, header)
	switch {
	case review == nil && (want != "" || response.status != http.StatusUnauthorized):
		return fmt.Errorf("refused with %s, want %q", response, want)
	case review != nil && who(review.UserInfo) != want:
		return fmt.Errorf("read as %q, want %q", who(review.UserInfo), want)
	}
	return nil
}

func (s *server) wantUser(t *testing.T, cert *tls.Certificate, header http.Header, want string) {
	t.Helper()
	if err := s.reads(t, cert, header, want); err != nil {
		t.Errorf("%v: %v", header, err)
	}
}

// TestS10OtherHeaderNames checks that the server uses the cluster's names of the headers instead
// of the usual ones: the kube-apiserver of such a cluster lets its clients send the usual ones
// (kubernetes/kubernetes#119631).
func TestS10OtherHeaderNames(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	usual, data := m.data(), m.data()
	data["requestheader-username-headers"] = `["X-Cluster-User"]`
	data["requestheader-uid-headers"] = `["X-Cluster-Uid"]`
	data["requestheader-group-headers"] = `["X-Cluster-Group"]`
	data["requestheader-extra-headers-prefix"] = `["X-Cluster-Extra-"]`
	m.set(data)
	s := start(t, r)
	s.waitReady(t)
	proxy := frontProxy(t)
	s.wantUser(t, proxy, http.Header{"X-Cluster-User": {"ann"}}, "ann")
	s.wantUser(t, proxy, forged(), "")
	mixed := forged()
	mixed["X-Cluster-User"], mixed["X-Cluster-Group"] = []string{"ann"}, []string{"a"}
	s.wantUser(t, proxy, mixed, `ann groups=["a"]`)
	s.wantUser(t, nil, http.Header{"X-Cluster-User": {"boss"}}, "")

	// A change of the names also applies without a restart.
	m.set(usual)
	shared.Eventually(t, "the usual names to count", envtest.WaitTimeout, func(context.Context) error {
		return s.reads(t, proxy, http.Header{"X-Remote-User": {"ann"}}, "ann")
	})
	s.wantUser(t, proxy, http.Header{"X-Cluster-User": {"boss"}}, "")
	// The log has one warning: of the other names, not of the usual ones.
	const warning = "WARNING: the front proxy's headers have unusual names"
	if log := s.end(); strings.Count(log, warning) != 1 ||
		!strings.Contains(log,
			"requestheader-extra-headers-prefix, requestheader-group-headers, requestheader-username-headers") {
		t.Errorf("want one warning of the three keys in the log:\n%s", log)
	}
}

// TestS12TrustFollows checks that a running server rejects a CA and a name that the cluster no
// longer trusts. An attacker with an old key must not have access until the next restart.
func TestS12TrustFollows(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	s := start(t, r)
	s.waitReady(t)
	oldCA, nextCA := readCA(t, certs.FrontProxyCADir), newCA(t, "front-proxy-ca")
	old, next := issue(t, oldCA, certs.FrontProxyUser), issue(t, nextCA, certs.FrontProxyUser)
	ann := http.Header{"X-Remote-User": {"ann"}}
	s.wantUser(t, old, ann, "ann")
	s.wantUser(t, next, ann, "")
	follow := func(what, key, value string, oldWant, nextWant string) {
		t.Helper()
		data := m.data()
		data[key] = value
		m.set(data)
		shared.Eventually(t, what, envtest.WaitTimeout, func(context.Context) error {
			if err := s.reads(t, old, ann, oldWant); err != nil {
				return fmt.Errorf("old certificate: %w", err)
			}
			if err := s.reads(t, next, ann, nextWant); err != nil {
				return fmt.Errorf("new certificate: %w", err)
			}
			return nil
		})
	}
	const bundle, names = "requestheader-client-ca-file", "requestheader-allowed-names"
	follow("both CAs to be trusted", bundle, string(certs.Bundle{oldCA.Certificate, nextCA.Certificate}.PEM()), "ann",
		"ann")
	follow("the old CA to be refused", bundle, string(certs.Bundle{nextCA.Certificate}.PEM()), "", "ann")
	follow("the name to be refused", names, `["another-name"]`, "", "")
	follow("the name to be allowed again", names, `["`+certs.FrontProxyUser+`"]`, "", "ann")

	// A typo in another key does not keep a name trusted that the same update revokes.
	intact, broken := m.data(), m.data()
	broken[names], broken["requestheader-group-headers"] = `["another-name"]`, `["X-Remote-Group`
	m.set(broken)
	shared.Eventually(t, "the revoked name to be refused", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, next, ann, "") })
	if got := s.try(nil, http.MethodGet, "/readyz?verbose", nil, ""); !strings.Contains(got.body,
		"[-]front-proxy-trust failed") {
		t.Errorf("readyz: %s, want the check front-proxy-trust to fail", got)
	}
	m.set(intact)
	s.waitReady(t)
	s.wantUser(t, next, ann, "ann")

	// The server also follows changes of the users' CA.
	users, nextUsers := readCA(t, "client-ca"), newCA(t, "client-ca")
	alice, nextAlice := issue(t, users, "alice"), issue(t, nextUsers, "alice")
	s.wantUser(t, alice, nil, "alice")
	data := m.data()
	data["client-ca-file"] = string(certs.Bundle{nextUsers.Certificate}.PEM())
	m.set(data)
	shared.Eventually(t, "the old CA of users to be refused", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, alice, nil, "") })
	s.wantUser(t, nextAlice, nil, "alice")
}

// TestS12TrustDeleted checks that without the ConfigMap no client is accepted as the front proxy.
func TestS12TrustDeleted(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	s := start(t, r)
	s.waitReady(t)
	proxy, ann := frontProxy(t), http.Header{"X-Remote-User": {"ann"}}
	s.wantUser(t, proxy, ann, "ann")
	data := m.data()
	m.remove()
	shared.Eventually(t, "the front proxy to be refused", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, proxy, ann, "") })
	m.set(data)
	shared.Eventually(t, "the front proxy to be trusted again", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, proxy, ann, "ann") })
}

// TestS12TrustWhileStopping checks that a server that is shutting down applies trust changes until
// its last request.
func TestS12TrustWhileStopping(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	m := newTrustMap(t, r)
	s := start(t, r, "--shutdown-delay-duration="+(envtest.WaitTimeout/2).String())
	s.waitReady(t)
	proxy, ann := frontProxy(t), http.Header{"X-Remote-User": {"ann"}}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the shutdown to begin", envtest.WaitTimeout, func(context.Context) error {
		if got := s.try(nil, http.MethodGet, "/readyz", nil, ""); got.status != http.StatusInternalServerError {
			return fmt.Errorf("/readyz: %s", got)
		}
		return nil
	})
	s.wantUser(t, proxy, ann, "ann")
	m.remove()
	shared.Eventually(t, "the front proxy to be refused", envtest.WaitTimeout,
		func(context.Context) error { return s.reads(t, proxy, ann, "") })
}
