// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"
)

// aggregator returns the endpoint of kube-apiserver, for an administrator.
func aggregator(t *testing.T, e *envtest.Environment) envtest.Endpoint {
	t.Helper()
	return envtest.NewEndpoint(t, e.Admin(t))
}

// direct returns the endpoint of the extension API server's own port, for an administrator.
func direct(t *testing.T, e *envtest.Environment) envtest.Endpoint {
	t.Helper()
	return envtest.NewEndpoint(t, e.Servers[0].ConfigAs(e, e.Admin(t)))
}

// existing returns a function that fails unless a GET of the path returns 200.
func existing(server envtest.Endpoint, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			return err
		}
		resp, err := server.Client.Do(req)
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

// roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
