// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/extension-apiserver/internal/certs"
)

// TestEndpoints asks the server's own port, as the front proxy for an administrator, for what is not the API itself.
func TestEndpoints(t *testing.T) {
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	admin := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/apis":           {200, `"name":"` + itemCase.resource.Group + `"`},
		"/openapi/v2":     {200, `"/apis/` + itemCase.resource.GroupVersion().String() + `/items"`},
		"/openapi/v3":     {200, `apis/` + itemCase.resource.GroupVersion().String()},
		"/version":        {200, `"gitVersion": "v1.36.3"`},
		"/readyz?verbose": {200, "[+]front-proxy-trust ok\n"},
		// Priority and fairness runs, and knows the cluster's FlowSchemas.
		"/metrics":      {200, `apiserver_flowcontrol_current_executing_requests{flow_schema="exempt"`},
		"/debug/pprof/": {404, ""},
	} {
		status, body := directRequest(t, shared, shared.Servers[0].URL, proxy, http.MethodGet, path, admin, nil)
		if status != want.status || !strings.Contains(body, want.body) {
			t.Errorf("GET %s: %d, contains %q: %t; want %d and true", path, status, want.body, strings.Contains(body, want.body), want.status)
		}
	}
}

// TestServingCertificateReload: a new certificate in the file is presented without a restart.
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
	shared.Eventually(t, "the new certificate", patience, func(ctx context.Context) error {
		dialer := tls.Dialer{Config: &tls.Config{
			RootCAs: certs.Bundle{ca.Certificate}.Pool(), ServerName: service.ServerName(), MinVersion: tls.VersionTLS12,
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

// TestAudit: with a policy, a request leaves an event with the user that the front proxy named.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--kubeconfig="+sharedKubeconfig(t), "--audit-policy-file="+policy, "--audit-log-path="+log)
	proxy := issue(t, readCA(t, shared, certs.FrontProxyCADir), certs.FrontProxyUser)
	headers := http.Header{"X-Remote-User": {"auditee"}, "X-Remote-Group": {"system:masters"}}
	path := "/apis/" + itemCase.resource.GroupVersion().String() + "/items"
	shared.Eventually(t, "an answer", patience, func(context.Context) error {
		if status, body := directRequest(t, shared, s.url, proxy, http.MethodGet, path, headers, nil); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	shared.Eventually(t, "the event", patience, func(context.Context) error {
		data, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			if strings.Contains(line, `"username":"auditee"`) && strings.Contains(line, `"resource":"items"`) && strings.Contains(line, `"code":200`) {
				return nil
			}
		}
		return fmt.Errorf("no event of auditee listing items in:\n%s", data)
	})
}
