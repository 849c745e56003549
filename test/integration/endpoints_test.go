// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/pkg/envtest"

	"example.com/extension-apiserver/internal/certs"
)

// TestEndpoints checks the endpoints of the server's own port besides the API, with requests of
// the front proxy for an administrator.
func TestEndpoints(t *testing.T) {
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	admin := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/apis":           {200, `"name":"` + gadgetCase.resource.Group + `"`},
		"/openapi/v2":     {200, `"/apis/` + gadgetCase.resource.GroupVersion().String() + `/gadgets"`},
		"/openapi/v3":     {200, `apis/` + gadgetCase.resource.GroupVersion().String()},
		"/version":        {200, `"gitVersion": "v1.37.2"`},
		"/readyz?verbose": {200, "[+]front-proxy-trust ok\n"},
		// Priority and fairness is enabled, and has loaded the FlowSchemas of the cluster.
		"/metrics":      {200, `apiserver_flowcontrol_current_executing_requests{flow_schema="exempt"`},
		"/debug/pprof/": {404, ""},
	} {
		status, body := directRequest(t, shared, shared.Servers[0].URL, proxy, http.MethodGet, path, admin, nil)
		if status != want.status || !strings.Contains(body, want.body) {
			t.Errorf("GET %s: %d, contains %q: %t; want %d and true", path, status, want.body,
				strings.Contains(body, want.body), want.status)
		}
	}
}

// TestServingCertificateReload checks that the server presents a new certificate from its file
// without a restart.
func TestServingCertificateReload(t *testing.T) {
	ca := readCA(t, shared, certs.ServingCADir)
	service := certs.Service{Name: "extension-apiserver", Namespace: "workshop-system"}
	leaf, err := ca.IssueServing(certs.ServingOptions{DNSNames: service.DNSNames()})
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Write(filepath.Join(shared.PKI(), certs.ServingDir), certs.Bundle{ca.Certificate}); err != nil {
		t.Fatal(err)
	}
	shared.Eventually(t, "the new certificate", envtest.WaitTimeout, func(ctx context.Context) error {
		dialer := tls.Dialer{Config: &tls.Config{
			RootCAs: certs.Bundle{ca.Certificate}.Pool(), ServerName: service.ServerName(),
			MinVersion: tls.VersionTLS12,
		}}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(shared.Servers[0].URL, "https://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if !conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Equal(leaf.Certificate) {
			return errors.New("the old one is presented")
		}
		return nil
	})
}
