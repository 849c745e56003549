// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/apis/identity"
	"example.com/extension-apiserver/pkg/envtest"
)

// response is a response of the server. Status 0 means that there was none, for the reason in body.
type response struct {
	status int
	header http.Header
	body   string
}

func (a response) String() string { return fmt.Sprintf("%d %.400s", a.status, a.body) }

// try sends a request to the server's own port, with the certificate unless it is nil.
func (s *server) try(cert *tls.Certificate, method, path string, header http.Header, body string) response {
	config, err := clientTLS(cert)
	if err != nil {
		return response{0, nil, err.Error()}
	}
	// HTTP/2, as the aggregator uses it. The longest waits of the server itself are 10 s for each
	// review.
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	return s.send(transport, method, path, header, body)
}

// send is try over the connections of a transport.
func (s *server) send(transport http.RoundTripper, method, path string, header http.Header, body string) response {
	ctx, cancel := context.WithTimeout(context.Background(), envtest.WaitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.address+path, strings.NewReader(body))
	if err != nil {
		return response{0, nil, err.Error()}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, header)
	return read((&http.Client{Transport: transport, CheckRedirect: noRedirect}).Do(req))
}

// read reads a response to its end.
func read(resp *http.Response, err error) response {
	if err != nil {
		return response{0, nil, err.Error()}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return response{0, nil, err.Error()}
	}
	return response{resp.StatusCode, resp.Header, string(data)}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// get is try for the protected path. It fails the test if there is no response.
func (s *server) get(t *testing.T, cert *tls.Certificate, header http.Header) response {
	t.Helper()
	got := s.try(cert, http.MethodGet, protected, header, "")
	if got.status == 0 {
		t.Fatalf("GET %s: %s", protected, got.body)
	}
	return got
}

// want fails the test if the response has another status.
func (a response) want(t *testing.T, what string, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %s; want %d", what, a, status)
	}
}

const reviewBody = `{"apiVersion":"workshop.example.com/v1","kind":"IdentityReview"}`

// review creates an IdentityReview, and returns the identity that the server reports, or nil if it
// rejects the request.
func (s *server) review(t *testing.T, cert *tls.Certificate,
	header http.Header) (*identity.IdentityReviewStatus, response) {
	t.Helper()
	got := s.try(cert, http.MethodPost, whoami, header, reviewBody)
	if got.status != http.StatusCreated {
		return nil, got
	}
	return parseReview(t, got.body), got
}

func parseReview(t *testing.T, body string) *identity.IdentityReviewStatus {
	t.Helper()
	var review identity.IdentityReview
	if err := json.Unmarshal([]byte(body), &review); err != nil || review.Status.UserInfo == nil {
		t.Fatalf("IdentityReview: %v in %s", err, body)
	}
	return &review.Status
}

// who formats a user in one line, without the attributes that all users have.
func who(u *authenticationv1.UserInfo) string {
	var groups []string
	for _, group := range u.Groups {
		if group != "system:authenticated" {
			groups = append(groups, group)
		}
	}
	line := u.Username
	if u.UID != "" {
		line += " uid=" + u.UID
	}
	if len(groups) > 0 {
		line += fmt.Sprintf(" groups=%q", groups)
	}
	delete(u.Extra, "authentication.kubernetes.io/credential-id")
	if len(u.Extra) > 0 {
		line += fmt.Sprintf(" extra=%v", u.Extra)
	}
	return line
}

// clientTLS trusts only the server's CA. It presents the certificate even if the server does not
// request its CA.
func clientTLS(cert *tls.Certificate) (*tls.Config, error) {
	data, err := os.ReadFile(filepath.Join(shared.PKI(), certs.ServingCADir, certs.CertFile))
	if err != nil {
		return nil, err
	}
	bundle, err := certs.ParseBundle(data)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: bundle.Pool(), ServerName: envtest.ServerName, MinVersion: tls.VersionTLS12}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return config, nil
}

// dial opens a connection on which the test writes every byte itself.
func (s *server) dial(t *testing.T, cert *tls.Certificate, protocol string) *tls.Conn {
	t.Helper()
	config, err := clientTLS(cert)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{protocol}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: envtest.WaitTimeout}, Config: config}).DialContext(
		t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(envtest.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn.(*tls.Conn)
}

// pairOf converts a key pair for crypto/tls.
func pairOf(pair *certs.KeyPair) *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{pair.Certificate.Raw}, PrivateKey: pair.Key, Leaf: pair.Certificate}
}

// readCA returns a CA of the control plane.
func readCA(t *testing.T, name string) *certs.CA {
	t.Helper()
	dir := filepath.Join(shared.PKI(), name)
	cert, err := os.ReadFile(filepath.Join(dir, certs.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, certs.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certs.ParseCA(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func newCA(t *testing.T, name string) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: x509.ExtKeyUsageClientAuth})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *certs.CA, user string, groups ...string) *tls.Certificate {
	t.Helper()
	pair, err := ca.IssueClient(certs.ClientOptions{User: user, Groups: groups, AllowSystemMasters: true})
	if err != nil {
		t.Fatal(err)
	}
	return pairOf(pair)
}

// frontProxy returns a valid certificate of the aggregator.
func frontProxy(t *testing.T) *tls.Certificate {
	t.Helper()
	return issue(t, readCA(t, certs.FrontProxyCADir), certs.FrontProxyUser)
}

// raw sends the bytes over HTTP/1.1 and returns the status and the body of the response.
func (s *server) raw(t *testing.T, bytes string, cert *tls.Certificate) (status, body string) {
	t.Helper()
	conn := s.dial(t, cert, "http/1.1")
	defer conn.Close()
	if _, err := io.WriteString(conn, bytes); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: no response: %v", bytes, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(resp.StatusCode), string(data)
}
