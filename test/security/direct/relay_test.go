// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
)

// The paths of kube-apiserver that a test may script.
const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	trustPath     = "/api/v1/namespaces/kube-system/configmaps"
)

// relay forwards all requests of the server to the real kube-apiserver, except for the paths that
// have a script.
type relay struct {
	url string
	ca  *certs.CA

	mu      sync.Mutex
	scripts map[string]http.HandlerFunc
	seen    []request
}

// request is a request that the server sent.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{Name: "relay-ca", Usage: x509.ExtKeyUsageServerAuth})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.IssueServing(certs.ServingOptions{DNSNames: []string{"localhost"}, IPs: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := shared.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Without its own credentials: the server's token passes through.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ca: ca, scripts: map[string]http.HandlerFunc{}}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      quiet,
	}
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if script := r.record(req); script != nil {
			script(w, req)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	ts.TLS = &tls.Config{Certificates: []tls.Certificate{*pairOf(pair)}, MinVersion: tls.VersionTLS13}
	ts.EnableHTTP2 = true
	ts.Config.ErrorLog = quiet
	ts.StartTLS()
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	r.url = ts.URL
	return r
}

// record stores a request, and returns its script, or nil.
func (r *relay) record(req *http.Request) http.HandlerFunc {
	var body []byte
	if req.Method != http.MethodGet {
		body, _ = io.ReadAll(io.LimitReader(req.Body, 1<<20))
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, request{req.Method, req.URL.RequestURI(), req.Header.Clone(), body})
	for prefix, script := range r.scripts {
		if strings.HasPrefix(req.URL.Path, prefix) {
			return script
		}
	}
	return nil
}

// script sets the response to all paths with the prefix. With nil, the real kube-apiserver
// responds again.
func (r *relay) script(prefix string, handler http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if handler == nil {
		delete(r.scripts, prefix)
		return
	}
	r.scripts[prefix] = handler
}

// clearRequests deletes the recorded requests.
func (r *relay) clearRequests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// requests returns the recorded requests whose paths have the prefix.
func (r *relay) requests(prefix string) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []request
	for _, req := range r.seen {
		if strings.HasPrefix(req.path, prefix) {
			found = append(found, req)
		}
	}
	return found
}

// access returns the specs of all SubjectAccessReviews that the server sent.
func (r *relay) access(t *testing.T) []authorizationv1.SubjectAccessReviewSpec {
	t.Helper()
	var specs []authorizationv1.SubjectAccessReviewSpec
	for _, req := range r.requests(accessReviews) {
		review := &authorizationv1.SubjectAccessReview{}
		decode(t, req.body, review)
		specs = append(specs, review.Spec)
	}
	return specs
}

// tokens returns the tokens of all TokenReviews that the server sent.
func (r *relay) tokens(t *testing.T) []string {
	t.Helper()
	var tokens []string
	for _, req := range r.requests(tokenReviews) {
		review := &authenticationv1.TokenReview{}
		decode(t, req.body, review)
		tokens = append(tokens, review.Spec.Token)
	}
	return tokens
}

// decode decodes an object for kube-apiserver in any encoding.
func decode(t *testing.T, body []byte, into runtime.Object) {
	t.Helper()
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		t.Errorf("decode what our server sent: %v in %.300q", err, body)
	}
}

// reply is a script that always sends the same response.
func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hang is a script that never responds.
func hang(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// reset is a script that aborts the connection.
func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func readAll(req *http.Request) ([]byte, error) { return io.ReadAll(io.LimitReader(req.Body, 1<<20)) }
