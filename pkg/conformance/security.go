// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Direct is the own port of an aggregated API server, to which the front proxy connects. The key
// of the front proxy permits requests as any user, so run these checks only on temporary
// clusters.
type Direct struct {
	// URL has the form https://HOST:PORT. ServerName and CA, which is PEM, verify the server's
	// certificate.
	URL, ServerName string
	CA              []byte
	// FrontProxy is the client certificate of kube-apiserver's aggregation layer.
	FrontProxy tls.Certificate
	// User is the client certificate of any user, issued by the cluster's CA for users. Without
	// it, a check is skipped.
	User *tls.Certificate
}

const (
	proxying       = "https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/"
	authenticating = "https://kubernetes.io/docs/reference/access-authn-authz/authentication/"
	smuggled       = "https://www.rfc-editor.org/rfc/rfc9112"
	crypto         = "https://www.rfc-editor.org/rfc/rfc9325"
)

// SecurityChecks returns the checks of ExecuteSecurity, in which callers forge their identity.
func SecurityChecks() []Check { return securityChecks }

// ExecuteSecurity runs the security checks at a server's own port, target.Direct. The target
// needs no Change, Invalid or Status.
func ExecuteSecurity(ctx context.Context, target Target) (*Report, error) {
	if target.Direct == nil {
		return nil, &TargetError{[]error{errors.New("the target has no Direct")}}
	}
	return execute(ctx, target, SecurityChecks())
}

// getDirect sends a request to the server's own port. If the server rejects the connection, it
// returns a response with code 0.
func (s *session) getDirect(cert *tls.Certificate, path string, options ...option) *response {
	r := request{query: url.Values{}, header: http.Header{}}
	for _, o := range options {
		o(&r)
	}
	config, err := s.tls(cert)
	if err != nil {
		s.fatalf("%v", err)
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	line := "GET " + s.r.target.Direct.URL + path
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.r.target.Direct.URL+path, nil)
	if err != nil {
		s.fatalf("%s: %v", line, err)
	}
	req.Header = r.header
	exchange := Exchange{Request: line}
	a := &response{request: line, s: s}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		exchange.Error, a.Body = err.Error(), []byte(err.Error())
		if s.ctx.Err() != nil {
			s.fatalf("%s: %v", line, err)
		}
	} else {
		defer resp.Body.Close()
		a.Code, a.Header = resp.StatusCode, resp.Header
		a.Body, _ = bodyOf(resp) // the check evaluates the part that was read
		exchange.Code, exchange.Response = a.Code, truncated(a.Body)
	}
	s.exchanges = append(s.exchanges, exchange)
	return a
}

// handshake stops the run if no TLS server listens at the address, because checks cannot
// distinguish that from a rejected connection.
func (s *session) handshake() {
	if a := s.getDirect(&s.r.target.Direct.FrontProxy, "/"); a.Code == 0 {
		s.fatalf("%s: %s", a.request, a.Body)
	}
}

func (s *session) tls(cert *tls.Certificate) (*tls.Config, error) {
	d := s.r.target.Direct
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(d.CA) {
		return nil, errors.New("the CA of the target has no certificate")
	}
	config := &tls.Config{RootCAs: roots, ServerName: d.ServerName, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return config, nil
}

// closed fails the check unless the response is 401 or 403, or the connection was rejected.
func (s *session) closed(a *response) {
	if a.Code != 0 && a.Code != 401 && a.Code != 403 {
		s.errorf("%s: got %s, want 401, 403 or no connection", a.request, a)
	}
}

// reader returns a user who may list the resource.
func (s *session) reader() string {
	user := "conformance-reader-" + s.label()
	s.grant(user, s.rule(s.r.discovered.gvr.Resource, "list", "get"))
	s.eventually("with the permission to list", func() string {
		if a := s.asProxiedUser(user); a.Code != 200 {
			return "got " + a.String()
		}
		return ""
	})
	return user
}

// asProxiedUser lists the resource as a user whom the front proxy names.
func (s *session) asProxiedUser(user string, options ...option) *response {
	return s.getDirect(&s.r.target.Direct.FrontProxy, s.collection(),
		append(options, header("X-Remote-User", user), header("X-Remote-Group", "system:authenticated"))...)
}

// account creates a ServiceAccount in its own namespace and returns the namespace and a token.
func (s *session) account(audiences ...any) (namespace, token string) {
	namespace = s.aNamespace()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	s.want(s.do("POST", path, body(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": "a"}})), 201)
	spec := map[string]any{"expirationSeconds": 600}
	if len(audiences) > 0 {
		spec["audiences"] = audiences
	}
	created := s.want(s.do("POST", path+"/a/token", body(
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})), 201).object()
	token, _, _ = unstructured.NestedString(created.Object, "status", "token")
	s.exchanges = nil // reports must not contain tokens
	return namespace, token
}

func bearer(token string) option { return header("Authorization", "Bearer "+token) }

// selfSigned returns a self-signed certificate for the name of the front proxy, which no server
// trusts.
func (s *session) selfSigned() *tls.Certificate {
	leaf, err := x509.ParseCertificate(s.r.target.Direct.FrontProxy.Certificate[0])
	if err != nil {
		s.fatalf("parse the certificate of the front proxy: %v", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.fatalf("%v", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: leaf.Subject.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.fatalf("%v", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sendRaw sends bytes over TLS, as the front proxy or without a certificate. It returns the codes
// of all responses on the connection.
func (s *session) sendRaw(cert *tls.Certificate, text string) (codes []int) {
	config, err := s.tls(cert)
	if err != nil {
		s.fatalf("%v", err)
	}
	host := strings.TrimPrefix(s.r.target.Direct.URL, "https://")
	conn, err := (&tls.Dialer{Config: config}).DialContext(s.ctx, "tcp", host)
	if err != nil {
		s.fatalf("connect to %s: %v", host, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		s.fatalf("%v", err)
	}
	exchange := Exchange{Request: truncated([]byte(text))}
	// The server may close the connection before it has read everything.
	_, _ = io.WriteString(conn, strings.ReplaceAll(text, "HOST", host))
	for lines := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(lines, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse)) // only the code matters
		_ = resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	exchange.Response = fmt.Sprint(codes)
	s.exchanges = append(s.exchanges, exchange)
	return codes
}

// expectRawRejected fails the check if any response to text, sent as the front proxy, has a code
// below 400.
func (s *session) expectRawRejected(text string) {
	for _, code := range s.sendRaw(&s.r.target.Direct.FrontProxy, text) {
		if code < 400 {
			s.errorf("got %d for %q, want an error or a closed connection", code, truncated([]byte(text)))
		}
	}
}

func aUser(_ *discovered, t *Target) string {
	if t.Direct == nil || t.Direct.User == nil {
		return "the target has no certificate of a user"
	}
	return ""
}

var securityChecks = []Check{
	{"identity/no-credentials", Required, authenticating, "Without credentials, the resource returns 401 or 403.", nil,
		func(s *session) {
			s.closed(s.getDirect(nil, s.collection()))
		}},
	{"identity/headers-without-certificate", Required, proxying,
		"The front proxy's headers without its certificate have no effect.", nil, func(s *session) {
			user := s.reader()
			s.closed(s.getDirect(nil, s.collection(), header("X-Remote-User", user)))
			s.closed(s.getDirect(nil, s.collection(), header("X-Remote-User", "system:admin"),
				header("X-Remote-Group", "system:masters")))
		}},
	{"identity/headers-with-untrusted-certificate", Required, proxying,
		"The front proxy's headers with an untrusted certificate have no effect, whatever its name.", nil,
		func(s *session) {
			user := s.reader()
			s.closed(s.getDirect(s.selfSigned(), s.collection(), header("X-Remote-User", user)))
		}},
	{"identity/headers-with-user-certificate", Required, proxying,
		"The front proxy's headers with a user's certificate do not authenticate another user.",
		[]need{aUser}, func(s *session) {
			user := s.reader()
			s.closed(s.getDirect(s.r.target.Direct.User, s.collection(), header("X-Remote-User", user)))
		}},
	{"identity/front-proxy", Required, proxying,
		"The front proxy authenticates the user in its headers, with that user's permissions.", nil, func(s *session) {
			s.reader() // waits for 200
			if a := s.asProxiedUser("conformance-stranger-" + s.label()); a.Code != 403 {
				s.errorf("an unprivileged user: got %s, want 403", a)
			}
		}},
	{"identity/front-proxy-without-user", Required, proxying,
		"The front proxy without a user in its headers has no permissions.", nil,
		func(s *session) {
			s.closed(s.getDirect(&s.r.target.Direct.FrontProxy, s.collection()))
			s.closed(s.getDirect(&s.r.target.Direct.FrontProxy, s.collection(),
				header("X-Remote-Group", "system:masters")))
		}},
	{"identity/headers-through-kube-apiserver", Required, proxying,
		"kube-apiserver does not forward identity headers that its clients send.", nil, func(s *session) {
			user := s.reader()
			_, token := s.account()
			a := s.asToken(token, s.collection(), header("X-Remote-User", user),
				header("X-Remote-Group", "system:masters"))
			if a.Code != 403 {
				s.errorf("%s with headers: got %s, want 403", a.request, a)
			}
		}},
	{"identity/headers-with-underscores", Required, smuggled,
		"Headers that are spelled with underscores are not treated as the front proxy's headers.",
		nil, func(s *session) {
			user := s.reader()
			s.closed(s.getDirect(&s.r.target.Direct.FrontProxy, s.collection(), func(r *request) {
				r.header["X_Remote_User"] = []string{user}
				r.header["X_Remote_Group"] = []string{"system:masters"}
			}))
		}},
	{"identity/impersonation", Required, authenticating,
		"Impersonation at the server's own port requires the permission to impersonate.", nil,
		func(s *session) {
			user := s.reader()
			s.closed(s.asProxiedUser("conformance-stranger-"+s.label(), header("Impersonate-User", user)))
		}},
	{"identity/impersonated-group", Required, authenticating,
		"No user can become a member of system:masters by impersonation.", nil, func(s *session) {
			user := "conformance-stranger-" + s.label()
			s.closed(s.asProxiedUser(user, header("Impersonate-User", user),
				header("Impersonate-Group", "system:masters")))
		}},
	{"tokens/invalid", Required, authenticating, "An invalid token returns 401.", nil, func(s *session) {
		if a := s.getDirect(nil, s.collection(), bearer("none")); a.Code != 401 {
			s.errorf("got %s, want 401", a)
		}
	}},
	{"tokens/unprivileged", Required, authenticating, "A token grants only the permissions of its account.", nil,
		func(s *session) {
			_, token := s.account()
			s.closed(s.getDirect(nil, s.collection(), bearer(token)))
		}},
	{"tokens/accepted", Optional, authenticating, "The server accepts a token at its own port.", nil, func(s *session) {
		namespace, token := s.account()
		s.grant("system:serviceaccount:"+namespace+":a", s.rule(s.r.discovered.gvr.Resource, "list"))
		s.eventually("with a token", func() string {
			if a := s.getDirect(nil, s.collection(), bearer(token)); a.Code != 200 {
				return "got " + a.String()
			}
			return ""
		})
	}},
	{"tokens/other-audience", Required, authenticating,
		"A token for another audience returns 401.", nil, func(s *session) {
			namespace, token := s.account("another.example.com")
			s.grant("system:serviceaccount:"+namespace+":a", s.rule(s.r.discovered.gvr.Resource, "list"))
			if a := s.getDirect(nil, s.collection(), bearer(token)); a.Code != 401 {
				s.errorf("got %s, want 401", a)
			}
		}},
	{"tokens/deleted-account", Required, authenticating, "The token of a deleted account soon loses its effect.",
		nil, func(s *session) {
			namespace, token := s.account()
			s.grant("system:serviceaccount:"+namespace+":a", s.rule(s.r.discovered.gvr.Resource, "list"))
			s.want(s.do("DELETE", "/api/v1/namespaces/"+namespace+"/serviceaccounts/a"), 200)
			s.eventually("after the account was deleted", func() string {
				if a := s.getDirect(nil, s.collection(), bearer(token)); a.Code != 401 {
					return "got " + a.String()
				}
				return ""
			})
		}},
	{"tokens/in-url", Required, authenticating, "A token in the URL has no effect.", nil, func(s *session) {
		namespace, token := s.account()
		s.grant("system:serviceaccount:"+namespace+":a", s.rule(s.r.discovered.gvr.Resource, "list"))
		s.closed(s.getDirect(nil, s.collection(), query("access_token", token)))
		s.exchanges = nil
	}},
	{"tokens/with-headers", Required, proxying,
		"A token does not authenticate the user in the front proxy's headers.", nil, func(s *session) {
			user := s.reader()
			_, token := s.account()
			s.closed(s.getDirect(nil, s.collection(), bearer(token), header("X-Remote-User", user)))
		}},
	{"permissions/revoked", Required, authorizing, "A revoked permission soon loses its effect.", nil, func(s *session) {
		user := s.reader()
		for _, path := range s.objects {
			s.want(s.do("DELETE", path), 200)
		}
		s.eventually("after the permission was revoked", func() string {
			if a := s.asProxiedUser(user); a.Code != 403 {
				return "got " + a.String()
			}
			return ""
		})
	}},
	{"permissions/non-resource-paths", Required, authorizing,
		"Metrics, profiles and logs require a permission.", nil, func(s *session) {
			user := s.reader()
			for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/flags/v", "/logs/", "/configz",
				"/statusz", "/flagz"} {
				for _, a := range []*response{s.getDirect(nil, path),
					s.getDirect(&s.r.target.Direct.FrontProxy, path, header("X-Remote-User", user))} {
					if a.Code != 404 {
						s.closed(a)
					}
				}
			}
		}},
	{"permissions/unclean-paths", Required, authorizing,
		"A path with dots or double slashes is authorized like the clean path.", nil, func(s *session) {
			for _, path := range []string{"/healthz/.." + s.collection(), "/healthz/%2e%2e" + s.collection(), "/" +
				s.collection(), "/healthz/." + s.collection(), s.collection() + "/..;/", "/healthz%00" +
				s.collection()} {
				if a := s.getDirect(nil, path); a.Code == 200 {
					s.errorf("%s without credentials: got %s", a.request, a)
				}
			}
		}},
	{"transport/old-tls", Required, crypto, "TLS 1.1 and older versions are rejected.", nil, func(s *session) {
		s.noHandshake(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	}},
	{"transport/weak-ciphers", Required, crypto, "Cipher suites without forward secrecy are rejected.", nil,
		func(s *session) {
			s.noHandshake(func(c *tls.Config) {
				c.MaxVersion, c.CipherSuites = tls.VersionTLS12,
					[]uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA, tls.TLS_RSA_WITH_AES_128_CBC_SHA,
						tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
			})
		}},
	{"transport/two-body-lengths", Required, smuggled,
		"A request with Content-Length and Transfer-Encoding cannot smuggle a second request.", nil, func(s *session) {
			user := s.reader()
			second := "GET " + s.collection() + " HTTP/1.1\r\nHost: HOST\r\nX-Remote-User: " + user + "\r\n\r\n"
			codes := s.sendRaw(&s.r.target.Direct.FrontProxy,
				fmt.Sprintf("GET /healthz HTTP/1.1\r\nHost: HOST\r\nContent-Length: %d\r\nTransfer-Encoding: "+
					"chunked\r\n\r\n0\r\n\r\n%s", len(second)+5, second))
			if len(codes) > 1 && codes[1] < 400 {
				s.errorf("got the responses %v, want none for the second request", codes)
			}
		}},
	{"transport/space-before-colon", Required, smuggled,
		"A space between the name of a header and the colon is rejected.", nil, func(s *session) {
			user := s.reader()
			s.expectRawRejected("GET " + s.collection() + " HTTP/1.1\r\nHost: HOST\r\nX-Remote-User : " + user +
				"\r\nConnection: close\r\n\r\n")
		}},
	{"transport/duplicate-host", Required, smuggled, "Two Host headers are rejected.", nil, func(s *session) {
		user := s.reader()
		s.expectRawRejected("GET " + s.collection() + " HTTP/1.1\r\nHost: HOST\r\nHost: other\r\nX-Remote-User: " + user +
			"\r\nConnection: close\r\n\r\n")
	}},
	{"transport/malformed-content-length", Required, smuggled,
		"A malformed Content-Length is rejected.", nil, func(s *session) {
			user := s.reader()
			for _, length := range []string{"-1", "+1", "1, 2", "0x10"} {
				s.expectRawRejected("GET " + s.collection() + " HTTP/1.1\r\nHost: HOST\r\nContent-Length: " + length +
					"\r\nX-Remote-User: " + user + "\r\nConnection: close\r\n\r\n")
			}
		}},
	{"transport/large-header", Required, smuggled, "A header of 2 MiB is rejected.", nil, func(s *session) {
		user := s.reader()
		s.expectRawRejected("GET " + s.collection() + " HTTP/1.1\r\nHost: HOST\r\nX-Large: " + strings.Repeat("x", 2<<20) +
			"\r\nX-Remote-User: " + user + "\r\nConnection: close\r\n\r\n")
	}},
	{"transport/foreign-origin", Recommended, "https://www.rfc-editor.org/rfc/rfc6455#section-10.2",
		"A web page of another origin cannot open a connection.", nil, func(s *session) {
			user := s.reader()
			a := s.asProxiedUser(user, header("Connection", "Upgrade"), header("Upgrade", "websocket"),
				header("Origin", "https://evil.example.com"),
				header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), header("Sec-WebSocket-Version", "13"))
			if a.Code == 101 {
				s.errorf("the connection was upgraded, want it rejected")
			}
		}},
	{"transport/redirects", Required, "https://github.com/kubernetes/kubernetes/issues/93107",
		"No response redirects the front proxy to another host.", nil, func(s *session) {
			user := s.reader()
			for _, path := range []string{"//evil.example.com/%2f..", "/\\evil.example.com",
				"/apis//evil.example.com/.."} {
				a := s.getDirect(&s.r.target.Direct.FrontProxy, path, header("X-Remote-User", user))
				if location := a.Header.Get("Location"); strings.Contains(location, "//evil") ||
					strings.Contains(location, "\\evil") {
					s.errorf("%s: redirected to %q", a.request, location)
				}
			}
		}},
}

// asToken sends a request through kube-apiserver with a token instead of the target's own
// credentials.
func (s *session) asToken(token, path string, options ...option) *response {
	return s.do("GET", path, append(options, at(s.r.bare), header("Authorization", "Bearer "+token))...)
}

// noHandshake fails the check if the server accepts the weakened TLS configuration.
func (s *session) noHandshake(weaken func(*tls.Config)) {
	config, err := s.tls(nil)
	if err != nil {
		s.fatalf("%v", err)
	}
	weaken(config)
	conn, err := (&tls.Dialer{Config: config}).DialContext(s.ctx, "tcp",
		strings.TrimPrefix(s.r.target.Direct.URL, "https://"))
	if err == nil {
		state := conn.(*tls.Conn).ConnectionState()
		_ = conn.Close()
		s.errorf("the server agreed to %s with %s", tls.VersionName(state.Version),
			tls.CipherSuiteName(state.CipherSuite))
	}
}
