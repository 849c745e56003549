// SPDX-License-Identifier: Apache-2.0

package aggregated

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// shared is the environment of all tests that leave it unchanged. Both servers keep an audit log,
// and the server caches no decision, so that the log shows all checks of each request.
var (
	shared *envtest.Environment
	logs   auditLogs
)

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

// group is the API group; current is its path in the storage version.
var (
	group   = install.GroupVersions()[0].Group
	current = "/apis/" + install.GroupVersions()[0].String()
)

// unique returns a name that no other test, and no earlier run of this one, has used.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

// newEndpoint uses HTTP/1.1, which upgrades need.
func newEndpoint(t *testing.T, config *rest.Config) envtest.Endpoint {
	t.Helper()
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	return envtest.NewEndpoint(t, config)
}

// admin returns the endpoint of kube-apiserver for an administrator.
func admin(t *testing.T, e *envtest.Environment) envtest.Endpoint {
	t.Helper()
	return newEndpoint(t, e.Admin(t))
}

// through returns the endpoint of kube-apiserver for a user whom an administrator impersonates.
// Behind kube-apiserver this does not differ from the user itself, and any name, UID, group and
// extra is possible.
func through(t *testing.T, e *envtest.Environment, who *user.DefaultInfo) envtest.Endpoint {
	t.Helper()
	config := e.Admin(t)
	config.Impersonate = rest.ImpersonationConfig{UserName: who.Name, UID: who.UID, Groups: who.Groups,
		Extra: who.Extra}
	return newEndpoint(t, config)
}

// proxyConfig is for the front proxy at the server's own port.
func proxyConfig(e *envtest.Environment) *rest.Config {
	config := e.Servers[0].Config(e)
	config.CertFile = filepath.Join(e.PKI(), certs.FrontProxyClientDir, certs.CertFile)
	config.KeyFile = filepath.Join(e.PKI(), certs.FrontProxyClientDir, certs.KeyFile)
	return config
}

// direct returns the endpoint of the server's own port for a user, with the requests that
// kube-apiserver would send: for requests that kube-apiserver would not proxy.
func direct(t *testing.T, e *envtest.Environment, who *user.DefaultInfo) envtest.Endpoint {
	t.Helper()
	config := proxyConfig(e)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(who.Name, who.UID, who.Groups, who.Extra, next)
	})
	return newEndpoint(t, config)
}
