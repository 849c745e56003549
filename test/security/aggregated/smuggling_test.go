// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/envtest"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// wire is a connection on which a test writes requests that no HTTP client would send.
type wire struct {
	net.Conn
	reader *bufio.Reader
	host   string
}

func dial(t *testing.T, config *rest.Config) *wire {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	security.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: security}).DialContext(t.Context(), "tcp", target.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	return &wire{conn, bufio.NewReader(conn), target.Host}
}

// send writes a request with unmodified header lines.
func (w *wire) send(t *testing.T, method, path, body string, lines ...string) {
	t.Helper()
	if body != "" {
		lines = append(lines, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	request := method + " " + path + " HTTP/1.1\r\nHost: " + w.host + "\r\n" +
		strings.Join(append(lines, ""), "\r\n") + "\r\n" + body
	if _, err := io.WriteString(w, request); err != nil {
		t.Fatalf("send %q: %v", request, err)
	}
}

// receive reads a response. It returns an error if the connection is closed.
func (w *wire) receive() (envtest.Response, error) {
	resp, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return envtest.Response{}, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return envtest.Response{Status: resp.StatusCode, Header: resp.Header}, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return envtest.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
}

// TestS07Smuggling checks that no header of a kube-apiserver client makes the server take it for
// another user.
func TestS07Smuggling(t *testing.T) {
	anybody(t)
	mallory := unique("mallory")
	config, err := shared.Config(mallory, "thieves")
	if err != nil {
		t.Fatal(err)
	}
	root := []string{"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Uid: 1",
		"X-Remote-Extra-Scope: all"}
	plus := func(lines ...string) []string { return append(slices.Clone(root), lines...) }
	for name, tc := range map[string]struct {
		lines []string
		// refused is the expected status if the request must not pass as the user's own. 0 means
		// that it passes.
		refused int
	}{
		// The first is the positive control.
		"nothing":                    {nil, 0},
		"headers of the front proxy": {root, 0},
		"twice":                      {plus(root...), 0},
		"lower case": {[]string{"x-remote-user: admin", "x-remote-group: system:masters",
			"x-remote-uid: 1"}, 0},
		"underscores":              {[]string{"X_Remote_User: admin", "X_Remote_Group: system:masters"}, 0},
		"a tab before the value":   {[]string{"X-Remote-User:\tadmin", "X-Remote-Group:\tsystem:masters"}, 0},
		"a space before the colon": {[]string{"X-Remote-User : admin"}, 400},
		"a folded line": {[]string{"X-Other: a", " X-Remote-User: admin",
			"X-Remote-Group: system:masters"}, 0},
		"a line feed only": {[]string{"X-Other: a\nX-Remote-User: admin\nX-Remote-Group: system:masters"},
			0},
		"a carriage return in a value": {[]string{"X-Other: a\rX-Remote-User: admin"}, 400},
		"a NUL in a value":             {[]string{"X-Remote-User: admin\x00"}, 400},
		"dropped as hop-by-hop": {plus(
			"Connection: X-Remote-User, X-Remote-Group, X-Remote-Uid, X-Remote-Extra-Scope"), 0},
		"dropped as hop-by-hop, alone": {[]string{"Connection: X-Remote-User, X-Remote-Group"}, 0},
		"kept for an upgrade": {plus("Connection: Upgrade, X-Remote-User, X-Remote-Group",
			"Upgrade: websocket"), 503},
		"dropped for an upgrade": {[]string{"Connection: X-Remote-User, Upgrade, X-Remote-Group",
			"Upgrade: SPDY/3.1"}, 503},
		"in a trailer":                {[]string{"Trailer: X-Remote-User", "TE: trailers"}, 0},
		"impersonation":               {[]string{"Impersonate-User: admin"}, 403},
		"impersonation, lower case":   {[]string{"impersonate-user: admin"}, 403},
		"impersonation, a second one": {[]string{"Impersonate-User: ", "Impersonate-User: admin"}, -1},
		"impersonation, underscores":  {[]string{"Impersonate_User: admin", "Impersonate_Group: system:masters"}, 0},
		"impersonation, hop-by-hop":   {[]string{"Impersonate-User: admin", "Connection: Impersonate-User"}, 403},
		"impersonation, group alone":  {[]string{"Impersonate-Group: system:masters"}, 400},
		"impersonation, UID alone":    {[]string{"Impersonate-Uid: 1"}, 400},
		"impersonation, extra alone":  {[]string{"Impersonate-Extra-Scope: all"}, 400},
		"impersonation of oneself, root": {[]string{"Impersonate-User: " + mallory,
			"Impersonate-Group: system:masters"}, 403},
	} {
		t.Run(name, func(t *testing.T) { smuggle(t, config, tc.lines, tc.refused) })
	}
	for _, spec := range specs(logs.checks(t, shared)["admin"]) {
		t.Errorf("our server reviewed the claimed user: %+v", spec)
	}
}

// smuggle sends a review with more headers. It passes as the caller's own, or is rejected with
// refused; -1 allows either.
func smuggle(t *testing.T, config *rest.Config, lines []string, refused int) {
	t.Helper()
	w := dial(t, config)
	w.send(t, http.MethodPost, current+reviews, string(reviewJSON), lines...)
	got, err := w.receive()
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	if got.Status == http.StatusServiceUnavailable && refused == got.Status {
		// kube-apiserver hides the response to an upgrade request that was not upgraded. The log
		// shows the user that the server saw.
		own := completed(t, logs.server, got.Header.Get("Audit-Id"))
		isMallory(t, own.User)
		return
	}
	if got.Status/100 != 2 {
		if refused == 0 || refused > 0 && got.Status != refused {
			t.Errorf("%s, want %d (0: 201)", got, refused)
		}
		return
	}
	if refused > 0 {
		t.Errorf("%s, want %d", got, refused)
	}
	isMallory(t, *seen(t, got.Body).UserInfo)
}

func isMallory(t *testing.T, who authenticationv1.UserInfo) {
	t.Helper()
	if !strings.HasPrefix(who.Username, "mallory-") || !slices.Equal(who.Groups,
		[]string{"thieves", user.AllAuthenticated}) ||
		who.UID != "" || len(who.Extra["scope"]) > 0 {
		t.Errorf("our server took the caller for %+v", who)
	}
}

// TestS20ImpersonationForbidden checks that a user without the permission to impersonate gets 403
// from kube-apiserver, which sends no request to the server.
func TestS20ImpersonationForbidden(t *testing.T) {
	anybody(t)
	name, bob := unique("mallory"), unique("bob")
	config, err := shared.Config(name)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: bob}
	post := func() envtest.Response {
		return newEndpoint(t, config).Do(t, http.MethodPost, current+reviews, nil, reviewJSON)
	}
	if got := post(); got.Status != http.StatusForbidden || !strings.Contains(string(got.Body), `cannot impersonate`) {
		t.Errorf("impersonation without the permission: %s, want 403 of kube-apiserver", got)
	}
	if got := specs(logs.checks(t, shared)[bob]); got != nil {
		t.Errorf("our server reviewed %s: %+v", bob, got)
	}
	// The same request with the permission, which covers one user and no group.
	allow(t, shared, ofUser(name), "", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users"},
		Verbs: []string{"impersonate"}})
	if got := post(); got.Status != http.StatusCreated || seen(t, got.Body).UserInfo.Username != bob {
		t.Errorf("impersonation with the permission: %s, want 201 as %s", got, bob)
	}
	config.Impersonate.Groups = []string{user.SystemPrivilegedGroup}
	if got := post(); got.Status != http.StatusForbidden {
		t.Errorf("impersonation of system:masters with the permission to impersonate users: %s, want 403", got)
	}
}

// TestS20Constrained checks that the permission to impersonate for one verb and one resource of
// the API (KEP-5284) covers nothing else. kube-apiserver decides; the server sees only the
// impersonated user.
func TestS20Constrained(t *testing.T) {
	if envtest.Minor() < "1.36" {
		t.Skip("before Kubernetes 1.36 it is behind a feature gate that is off")
	}
	anybody(t)
	name, bob := unique("helper"), unique("bob")
	allow(t, shared, ofUser(bob), "", everything)
	allow(t, shared, ofUser(name), "",
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"},
			Verbs: []string{"impersonate:user-info"}},
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"identityreviews"},
			Verbs: []string{"impersonate-on:user-info:create"}})
	config, err := shared.Config(name)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: bob}
	server := newEndpoint(t, config)
	if got := server.Must(t, http.MethodPost, current+reviews, nil, reviewJSON); seen(t,
		got.Body).UserInfo.Username != bob {
		t.Errorf("create of a review, with the permission: %s, want it as %s", got, bob)
	}
	if got := server.Do(t, http.MethodGet, current+"/gadgets", nil, nil); got.Status != http.StatusForbidden {
		t.Errorf("list, without the permission: %s, want 403", got)
	}
	if got := specs(logs.checks(t, shared)[bob]); len(got) != 1 {
		t.Errorf("our server sent %d SubjectAccessReviews for %s, want one: %+v", len(got), bob, got)
	}
}
