// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/transport"

	"example.com/extension-apiserver/internal/certs"
)

// proxied is the result of authenticating a request from the front proxy.
type proxied struct {
	user       user.Info // nil if the request was rejected
	credential Credential
	left       http.Header
	sha256     string // of the certificate in the request
}

// frontProxy returns a function that sends headers with the certificate of the front proxy through
// the filter that the server runs before all handlers. The function sets the certificate in the
// request without TLS, because the tests vary only the headers.
func frontProxy(f *testing.F) func(*testing.T, http.Header) proxied {
	f.Helper()
	proxies := newCA(f, "front-proxy-ca", x509.ExtKeyUsageClientAuth)
	trust := sources(f, proxies, newCA(f, "client-ca", x509.ExtKeyUsageClientAuth))
	authenticator, err := New(genericoptions.NewDelegatingAuthenticationOptions(), trust)
	if err != nil {
		f.Fatal(err)
	}
	state := &tls.ConnectionState{PeerCertificates: certs.Bundle{issueClient(f, proxies,
		"front-proxy-client").Certificate}}
	return func(t *testing.T, header http.Header) proxied {
		t.Helper()
		var got proxied
		calls := 0
		keep := func(_ http.ResponseWriter, req *http.Request) {
			calls++
			got.user, _ = genericapirequest.UserFrom(req.Context())
			got.credential, _ = CredentialFrom(req.Context())
			got.left = req.Header
		}
		handler := WithCredential(genericapifilters.WithAuthentication(http.HandlerFunc(keep), authenticator,
			http.HandlerFunc(keep), nil, trust.RequestHeader))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost/apis", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header, req.TLS = header.Clone(), state
		handler.ServeHTTP(nil, req)
		got.sha256 = certs.Fingerprint(state.PeerCertificates[0])
		if calls != 1 {
			t.Fatalf("got %d responses, want one", calls)
		}
		return got
	}
}

// FuzzFrontProxyHeaders checks that, with any headers and the certificate of the front proxy, the
// user is the first value of the user header, with exactly the groups and extras of the other
// headers, and that no handler sees these headers. Without a user name, the request is rejected.
func FuzzFrontProxyHeaders(f *testing.F) {
	send := frontProxy(f)
	for _, block := range []string{
		"",
		"X-Remote-User: bob",
		"X-Remote-User: bob\r\nX-Remote-Uid: 42\r\nX-Remote-Group: a\r\nX-Remote-Group: b\r\nX-Remote-Extra-Team: " +
			"x\r\nX-Remote-Extra-Team: y",
		"x-remote-user: bob\r\nX-REMOTE-USER: mallory\r\nx-remote-extra-a%2fb: 1\r\nX-Remote-Extra-A/B: 2",
		"X-Remote-User:\r\nX-Remote-User: mallory",
		"X-Remote-User: \t \r\nX-Remote-Group: system:masters",
		"X-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: all\r\nX-Remote-Uid: 0",
		"X_Remote_User: mallory\r\nX-Remote-User : mallory\r\nX-Remote-Username: mallory",
		"X-Remote-User: bob, mallory\r\nX-Remote-Group: a,b\r\nX-Remote-Group:",
		"X-Remote-User: bob\r\n mallory\r\nX-Remote-Group: a\r\n\tb",
		"X-Remote-User: bob\r\nX-Remote-Extra-%2525: once\r\nX-Remote-Extra-%: odd\r\nX-Remote-Extra-%zz: " +
			"odd\r\nX-Remote-Extra-: none",
		"X-Remote-User: system:anonymous\r\nX-Remote-Group: system:unauthenticated",
		"X-Remote-User: bob\r\nX-Remote-Group: system:authenticated\r\nX-Remote-Group: system:masters",
		"Authorization: Bearer good\r\nX-Remote-User: bob\r\nImpersonate-User: mallory",
		"Authorization: Bearer good",
		"X-Remote-User: b\xc3\xb6b\r\nX-Remote-Group: \xff\xfe",
	} {
		f.Add(block)
	}
	f.Fuzz(func(t *testing.T, block string) {
		// The standard library canonicalizes header names equally in HTTP/1 and HTTP/2.
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET /apis HTTP/1.1\r\nHost: localhost\r\n" +
			block + "\r\n\r\n")))
		if err != nil {
			return
		}
		got := send(t, req.Header)
		name := first(req.Header["X-Remote-User"])
		switch {
		case name == "" && got.user == nil:
			return
		case name == "":
			if got.user.GetName() != "robot" || got.credential != (Credential{Authenticator: BearerToken}) {
				t.Fatalf("got the user %+v by %+v without a header for the user, want none but that of a good token",
					got.user, got.credential)
			}
		default:
			want := &user.DefaultInfo{Name: name, UID: first(req.Header["X-Remote-Uid"]),
				Groups: groupsOf(name, req.Header["X-Remote-Group"]), Extra: extraOf(req.Header)}
			checkUser(t, want, got)
		}
		checkLeft(t, req.Header, got.left)
	})
}

// FuzzFrontProxyUser checks that a user arrives as kube-apiserver knows it. kube-apiserver writes
// the headers with the function used here.
func FuzzFrontProxyUser(f *testing.F) {
	send := frontProxy(f)
	f.Add("bob", "42", "a", "system:masters", "team", "x")
	f.Add("system:serviceaccount:demo:default", "", "", "", "authentication.kubernetes.io/pod-name", "p-1")
	f.Add("bob", "\x00", "system:authenticated", "", "a%2fb", "")
	f.Add("", "42", "system:masters", "", "k", "v")
	f.Add("b\xf6b\r\nX-Remote-User: mallory", "a,b", "a,b", "\n", "UPPER case \xff\r\n%25", ",")
	f.Fuzz(func(t *testing.T, name, uid, group, other, key, value string) {
		req := &http.Request{Header: http.Header{}}
		transport.SetAuthProxyHeaders(req, name, uid, []string{group, other}, map[string][]string{key: {value, other}})
		got := send(t, req.Header)
		if name == "" {
			if got.user != nil {
				t.Fatalf("got the user %+v, want none where the name is empty", got.user)
			}
			return
		}
		// Header names are case-insensitive, and therefore the keys are, too.
		lower := []byte(key)
		for i, c := range lower {
			if 'A' <= c && c <= 'Z' {
				lower[i] += 'a' - 'A'
			}
		}
		checkUser(t, &user.DefaultInfo{Name: name, UID: uid, Groups: groupsOf(name, []string{group, other}),
			Extra: map[string][]string{string(lower): {value, other}}}, got)
		checkLeft(t, req.Header, got.left)
	})
}

func checkUser(t *testing.T, want *user.DefaultInfo, got proxied) {
	t.Helper()
	if got.user == nil {
		t.Fatalf("refused, want the user %+v", want)
	}
	info := &user.DefaultInfo{Name: got.user.GetName(), UID: got.user.GetUID(), Groups: got.user.GetGroups(),
		Extra: got.user.GetExtra()}
	// The values of headers whose names decode to the same key have no order.
	if diff := cmp.Diff(want, info, cmpopts.EquateEmpty(),
		cmp.FilterPath(func(p cmp.Path) bool { return strings.Contains(p.String(), "Extra") },
			cmpopts.SortSlices(strings.Compare))); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	if want := (Credential{Authenticator: RequestHeader, ProxySubject: "CN=front-proxy-client",
		ProxySHA256: got.sha256}); got.credential != want {
		t.Errorf("credential: got %+v, want %+v", got.credential, want)
	}
}

// checkLeft checks that a handler receives every header except those that describe the user and
// its credentials.
func checkLeft(t *testing.T, sent, left http.Header) {
	t.Helper()
	want := sent.Clone()
	for key := range want {
		if _, ok := extraKey(key); ok || slices.Contains([]string{"X-Remote-User", "X-Remote-Uid", "X-Remote-Group",
			"Authorization"}, key) {
			delete(want, key)
		}
	}
	if diff := cmp.Diff(want, left, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("headers that a handler sees (-want +got):\n%s", diff)
	}
}

func first(values []string) string { return append(slices.Clone(values), "")[0] }

// groupsOf returns the sent groups without empty ones, and adds system:authenticated as the
// library does. The library does not add it for the anonymous user or for a user in
// system:unauthenticated.
func groupsOf(name string, sent []string) []string {
	groups := slices.DeleteFunc(slices.Clone(sent), func(group string) bool { return group == "" })
	if name == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) ||
		slices.Contains(groups, user.AllUnauthenticated) {
		return groups
	}
	return append(groups, user.AllAuthenticated)
}

func extraOf(header http.Header) map[string][]string {
	extra := map[string][]string{}
	for name, values := range header {
		if key, ok := extraKey(name); ok {
			extra[key] = append(extra[key], values...)
		}
	}
	return extra
}

// extraKey decodes the percent-encoded key of a header for an extra, once. An invalid encoding
// stays unchanged.
func extraKey(name string) (string, bool) {
	const prefix = "x-remote-extra-"
	lower := strings.ToLower(name)
	if len(name) < len(prefix) || !strings.HasPrefix(lower, prefix) {
		return "", false
	}
	encoded := lower[len(prefix):]
	parts := strings.Split(encoded, "%")
	key := []byte(parts[0])
	for _, part := range parts[1:] {
		if len(part) < 2 {
			return encoded, true
		}
		c, err := strconv.ParseUint(part[:2], 16, 8)
		if err != nil {
			return encoded, true
		}
		key = append(append(key, byte(c)), part[2:]...)
	}
	return string(key), true
}
