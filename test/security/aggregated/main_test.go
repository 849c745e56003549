// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/fixture/install"
)

// shared is the environment of all tests that leave it as they found it: both servers keep an audit log, and our server
// remembers no verdict, so that each request shows all that it asks.
var (
	shared *envtest.Environment
	logs   auditLogs
)

// patience is how long a condition may take to come true on a busy machine. Tests wait for it, and end as soon as it is.
const patience = time.Minute

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "audit-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var options envtest.Options
	if logs, options, err = audited(dir, "0s"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options.ServerArgs = append(options.ServerArgs, admitFriend)
	code := envtest.Main(m, options, &shared)
	os.RemoveAll(dir)
	os.Exit(code)
}

// group is our API group; current is its path in the version that is stored.
var (
	group   = install.GroupVersions[0].Group
	current = "/apis/" + install.GroupVersions[0].String()
)

// unique makes names that no other test, and no earlier run of this one, has used.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

func adminConfig(t *testing.T, e *envtest.Environment) *rest.Config {
	t.Helper()
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func adminClient(t *testing.T, e *envtest.Environment) kubernetes.Interface {
	t.Helper()
	client, err := e.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// endpoint is a server that a user sends requests to, as they are.
type endpoint struct {
	client *http.Client
	url    string
}

// newEndpoint speaks HTTP/1.1, which upgrades need.
func newEndpoint(t *testing.T, config *rest.Config) endpoint {
	t.Helper()
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// Redirects are answers too, and not to be followed.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(client.CloseIdleConnections)
	return endpoint{client, config.Host}
}

// admin is kube-apiserver for an administrator.
func admin(t *testing.T, e *envtest.Environment) endpoint {
	t.Helper()
	return newEndpoint(t, adminConfig(t, e))
}

// through is kube-apiserver for a user whom an administrator impersonates: behind kube-apiserver there is no difference to
// the user itself, and any name, UID, group and extra can be had.
func through(t *testing.T, e *envtest.Environment, who *user.DefaultInfo) endpoint {
	t.Helper()
	config := adminConfig(t, e)
	config.Impersonate = rest.ImpersonationConfig{UserName: who.Name, UID: who.UID, Groups: who.Groups, Extra: who.Extra}
	return newEndpoint(t, config)
}

// proxyConfig is for the front proxy at our server's own port.
func proxyConfig(e *envtest.Environment) *rest.Config {
	config := e.Servers[0].Config(e)
	config.CertFile = filepath.Join(e.PKI(), certs.FrontProxyClientDir, certs.CertFile)
	config.KeyFile = filepath.Join(e.PKI(), certs.FrontProxyClientDir, certs.KeyFile)
	return config
}

// direct is our server's own port for a user, as kube-apiserver would send its requests: for what kube-apiserver would not pass on.
func direct(t *testing.T, e *envtest.Environment, who *user.DefaultInfo) endpoint {
	t.Helper()
	config := proxyConfig(e)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(who.Name, who.UID, who.Groups, who.Extra, next)
	})
	return newEndpoint(t, config)
}

// answer is an answer as it came.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %.500s", a.status, a.body) }

// open sends a request and returns the answer with its body not yet read. The caller closes it.
func (e endpoint) open(t *testing.T, method, path string, header http.Header, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
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

// must expects an answer of 2xx: for what tests prepare, and for positive controls.
func (e endpoint) must(t *testing.T, method, path string, header http.Header, body []byte) answer {
	t.Helper()
	a := e.do(t, method, path, header, body)
	if a.status/100 != 2 {
		t.Fatalf("%s %s: %s, want 2xx", method, path, a)
	}
	return a
}
