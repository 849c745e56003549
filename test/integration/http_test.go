// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
)

// endpoint is a server that a user sends requests to, as they are: for what client libraries choose or hide, such as
// headers and encodings.
type endpoint struct {
	client *http.Client
	url    string
}

func newEndpoint(t *testing.T, config *rest.Config) endpoint {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return endpoint{client, config.Host}
}

// aggregator is kube-apiserver, for an administrator.
func aggregator(t *testing.T, e *envtest.Environment) endpoint {
	t.Helper()
	return newEndpoint(t, adminConfig(t, e))
}

// directConfig is for a user at our server's own port, past kube-apiserver.
func directConfig(e *envtest.Environment, user *rest.Config) *rest.Config {
	config := e.Servers[0].Config(e)
	config.CertFile, config.KeyFile = user.CertFile, user.KeyFile
	return config
}

// direct is our server's own port, for an administrator.
func direct(t *testing.T, e *envtest.Environment) endpoint {
	t.Helper()
	return newEndpoint(t, directConfig(e, adminConfig(t, e)))
}

// answer is an answer as it came.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// open sends a request and returns the answer with its body not yet read, as a watch needs it. The caller closes it.
func (e endpoint) open(t *testing.T, method, path string, header http.Header, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (e endpoint) do(t *testing.T, method, path string, header http.Header, body []byte) answer {
	t.Helper()
	resp := e.open(t, method, path, header, body)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// get expects the status 200.
func (e endpoint) get(t *testing.T, path string, header http.Header) answer {
	t.Helper()
	a := e.do(t, http.MethodGet, path, header, nil)
	if a.status != http.StatusOK {
		t.Fatalf("GET %s: %d %.1000s, want 200", path, a.status, a.body)
	}
	return a
}

// existing returns a check that something is there.
func existing(server endpoint, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.url+path, nil)
		if err != nil {
			return err
		}
		resp, err := server.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, resp.Status)
		}
		return nil
	}
}

// roundTrip is a function that is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
