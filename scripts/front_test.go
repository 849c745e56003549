// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// front is a reverse proxy in front of a real kube-apiserver. It replaces the responses that a
// test sets, and records the requests that would change the cluster.
type front struct {
	responses map[string]string          // responses by path
	cut       func(*http.Response) error // an error breaks the connection after the real kube-apiserver has responded
	mu        sync.Mutex
	writes    []string
}

// newFront starts a front of the cluster of config, and returns it with a kubeconfig for it.
func newFront(t *testing.T, config *rest.Config, responses map[string]string) (f *front, kubeconfig string) {
	t.Helper()
	f = &front{responses: responses, cut: func(*http.Response) error { return nil }}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error { return f.cut(r) },
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.note(r)
		if response, ok := f.responses[r.URL.Path]; ok {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, response)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: front, cluster: {server: %q}}]
users: [{name: user, user: {}}]
contexts: [{name: front, context: {cluster: front, user: user}}]
current-context: front
`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return f, kubeconfig
}

// note records the request, unless it only reads.
func (f *front) note(r *http.Request) {
	// kubectl auth can-i creates these reviews, which change nothing.
	accessReview := strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/v1/selfsubject")
	if r.Method == http.MethodGet || accessReview || r.URL.Query().Get("dryRun") != "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, r.Method+" "+r.URL.Path)
}

func (f *front) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}
