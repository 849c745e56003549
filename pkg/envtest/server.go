// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/certs"
)

// serverPort is the port of an extension API server on its own host.
const serverPort = 6443

// tokenLifetime is longer than `make run` usually runs. Each start requests a new token.
const tokenLifetime = 7 * 24 * time.Hour

// Server is an extension API server of the environment.
type Server struct {
	*process
	// Name is the name of its log, URL the address at which it serves. Its certificate is for
	// ServerName.
	Name, URL   string
	host        *host
	command     []string
	environment []string
}

// ServerName is the name in the servers' certificate, which is the name of the Service.
const ServerName = ServiceName + "." + Namespace + ".svc"

// startServers grants only the permissions of the manifests and starts the servers with a
// ServiceAccount token.
func (e *Environment) startServers() (err error) {
	if err := e.step("permissions of the server", func() error { return e.grant(e.ctx) }); err != nil {
		return err
	}
	if e.noStorage, err = e.hasNoStorage(); err != nil {
		return err
	}
	if e.options.ExternalEtcd && !e.noStorage {
		if err := e.step("etcd of the server", func() error {
			h, err := e.newHost("workshop-etcd", 10)
			if err == nil {
				e.external, err = e.startEtcd(e.ctx, h, "workshop-etcd")
			}
			return err
		}); err != nil {
			return err
		}
	}
	for i := 1; i <= e.options.Servers; i++ {
		name := ServiceName
		if i > 1 {
			name = fmt.Sprintf("%s-%d", ServiceName, i)
		}
		if err := e.step(name, func() error { return e.startServer(e.ctx, name, i, e.storageArgs(i)) }); err != nil {
			return err
		}
	}
	return nil
}

// hasNoStorage returns whether the server has no flags for a storage, because no kind is stored in
// etcd.
func (e *Environment) hasNoStorage() (bool, error) {
	help, err := exec.CommandContext(e.ctx, e.server, "serve", "--help").Output()
	if err != nil {
		return false, fmt.Errorf("read the flags of %s: %w", e.server, err)
	}
	return !bytes.Contains(help, []byte("--etcd-servers")), nil
}

// storageArgs returns the flags that locate the storage of a server.
func (e *Environment) storageArgs(number int) []string {
	if e.noStorage {
		return nil
	}
	if e.external == nil {
		return []string{"--data-dir=" + filepath.Join(e.Dir, fmt.Sprintf("data-%d", number))}
	}
	return []string{
		"--etcd-servers=" + e.external.url,
		"--etcd-cafile=" + e.pki.cert("control-plane-ca"),
		"--etcd-certfile=" + e.pki.cert(e.external.client),
		"--etcd-keyfile=" + e.pki.key(e.external.client),
	}
}

// AccountKubeconfig returns the path of a kubeconfig with a token of a ServiceAccount.
func (e *Environment) AccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	token, err := e.Token(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	base := filepath.Join(e.Dir, "users", fileName("account-"+namespace+"-"+name))
	if err := os.WriteFile(base+".token", []byte(token), 0o600); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	path := base + ".kubeconfig"
	return path, e.writeKubeconfig(path, e.KubeAPIServers[0], namespace,
		&clientcmdapi.AuthInfo{TokenFile: base + ".token"})
}

// Token returns a token of a ServiceAccount.
func (e *Environment) Token(ctx context.Context, namespace, name string) (string, error) {
	client, err := e.AdminClient()
	if err != nil {
		return "", err
	}
	seconds := int64(tokenLifetime.Seconds())
	request, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of %s/%s: %w", namespace, name, err)
	}
	return request.Status.Token, nil
}

// newHost returns a host with its own address, or loopback. Numbers up to 4 are for
// kube-apiservers, 10 is for the external etcd.
func (e *Environment) newHost(name string, number int) (*host, error) {
	switch {
	case e.lan == nil:
		return loopbackHost(&e.ports), nil
	case e.node != nil:
		return e.node.addPod(name, number)
	}
	return e.lan.addRoutedHost(name, number)
}

func (e *Environment) startServer(ctx context.Context, name string, number int, storage []string) error {
	h, err := e.newHost(name, 10+number)
	if err != nil {
		return err
	}
	port, err := h.port(serverPort)
	if err != nil {
		return err
	}
	s := &Server{Name: name, host: h, URL: fmt.Sprintf("https://%s:%d", h.address, port),
		environment: e.options.ServerEnv}
	s.command = append([]string{
		e.server, "serve",
		"--kubeconfig=" + e.serverKubeconfig,
		"--bind-address=" + h.address,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + e.pki.cert(certs.ServingDir),
		"--tls-private-key-file=" + e.pki.key(certs.ServingDir),
	}, storage...)
	s.command = override(s.command, e.options.ServerArgs)
	e.Servers = append(e.Servers, s)
	return e.runServer(ctx, s)
}

func (e *Environment) runServer(ctx context.Context, s *Server) error {
	var err error
	if s.process, err = e.processes.start(s.host, s.Name, s.command, s.environment...); err != nil {
		return err
	}
	admin, err := e.AdminConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(s.ConfigAs(e, admin))
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return s.ready(ctx, startTimeout, func(ctx context.Context) error { return s.checkReady(ctx, client) })
}

var failedCheck = regexp.MustCompile(`\[-\](\S+) failed`)

// checkReady returns an error if the server is not ready. The response of /readyz does not
// contain the reasons of failed checks, so it also requests each failed check.
func (s *Server) checkReady(ctx context.Context, client *http.Client) error {
	err := getOK(ctx, client, s.URL+"/readyz?verbose")
	if err == nil {
		return nil
	}
	for _, check := range failedCheck.FindAllStringSubmatch(err.Error(), -1) {
		err = errors.Join(err, getOK(ctx, client, s.URL+"/readyz/"+check[1]))
	}
	return err
}

// Config returns a client configuration without credentials for the server's own port, which
// bypasses kube-apiserver.
func (s *Server) Config(e *Environment) *rest.Config {
	return &rest.Config{
		Host:            s.URL,
		Dial:            s.host.dial,
		Proxy:           noProxy,
		TLSClientConfig: rest.TLSClientConfig{CAFile: e.pki.cert(certs.ServingCADir), ServerName: ServerName},
	}
}

// ConfigAs is Config with the client certificate of a user of kube-apiserver.
func (s *Server) ConfigAs(e *Environment, user *rest.Config) *rest.Config {
	config := s.Config(e)
	config.CertFile, config.KeyFile = user.CertFile, user.KeyFile
	return config
}

// Client returns an HTTP client without credentials for the server's own port.
func (s *Server) Client(e *Environment) (*http.Client, error) { return rest.HTTPClientFor(s.Config(e)) }

// StopServer stops a server as a rollout does.
func (e *Environment) StopServer(s *Server) error { return s.stop() }

// StartServer starts a stopped server again at the same address. It returns when the server is
// ready.
func (e *Environment) StartServer(ctx context.Context, s *Server) error { return e.runServer(ctx, s) }

// RestartServer stops a server and starts it again.
func (e *Environment) RestartServer(ctx context.Context, s *Server) error {
	if err := e.StopServer(s); err != nil {
		return err
	}
	return e.StartServer(ctx, s)
}

// KillServer kills a server without a graceful shutdown.
func (e *Environment) KillServer(s *Server) { s.kill() }

// CrashServer kills a server and starts it again.
func (e *Environment) CrashServer(ctx context.Context, s *Server) error {
	e.KillServer(s)
	return e.StartServer(ctx, s)
}
