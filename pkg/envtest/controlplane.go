// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/internal/certs"
)

// startTimeout is how long a process may take to become ready. It usually takes 1 to 3 s, but
// longer on a busy machine.
const startTimeout = 90 * time.Second

// KubeAPIServer is one kube-apiserver of the control plane.
type KubeAPIServer struct {
	*process
	// URL is the address at which it serves.
	URL string
	// FrontProxyClientDir is the directory of its front-proxy key pair and CA, with
	// Options.FrontProxyPerHost.
	FrontProxyClientDir string
	// ProxyServer is its konnectivity server, and Agents are the agents of that server, if there
	// is a tunnel.
	ProxyServer *KonnectivityProcess
	Agents      []*KonnectivityProcess
	host        *host
	command     []string
	tunnel      Tunnel
}

// startKubeAPIServer starts a kube-apiserver with the aggregation layer enabled.
func (e *Environment) startKubeAPIServer(ctx context.Context, h *host, name string) (*KubeAPIServer, error) {
	port, err := h.port(6443)
	if err != nil {
		return nil, err
	}
	if err := e.pki.serving(name, kubeadmNames(h, e.options.controlPlaneEndpoint()...)); err != nil {
		return nil, err
	}
	k := &KubeAPIServer{host: h, URL: fmt.Sprintf("https://%s:%d", h.address, port)}
	k.command = append([]string{
		e.Binary("kube-apiserver"),
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + e.pki.cert(name),
		"--tls-private-key-file=" + e.pki.key(name),
		"--etcd-servers=" + e.etcd.url,
		"--etcd-cafile=" + e.pki.cert("control-plane-ca"),
		"--etcd-certfile=" + e.pki.cert(e.etcd.client),
		"--etcd-keyfile=" + e.pki.key(e.etcd.client),
		"--authorization-mode=RBAC",
		"--client-ca-file=" + e.pki.cert("client-ca"),
		// The aggregation layer has a CA of its own. kube-apiserver does not publish the UID
		// header by default.
		"--requestheader-client-ca-file=" + e.pki.cert(certs.FrontProxyCADir),
		"--requestheader-allowed-names=" + certs.FrontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + e.pki.cert(certs.FrontProxyClientDir),
		"--proxy-client-key-file=" + e.pki.key(certs.FrontProxyClientDir),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + filepath.Join(e.pki.dir, "service-account", "tls.pub"),
		"--service-account-signing-key-file=" + e.pki.key("service-account"),
		"--service-cluster-ip-range=" + serviceNetwork,
		// End open watches at shutdown. Without the first flag, its own watches delay the
		// shutdown for a minute, and without the second those of aggregated APIs do.
		"--shutdown-watch-termination-grace-period=2s",
		"--shutdown-send-retry-after=true",
	}, e.routingArgs(h)...)
	k.command = override(k.command, e.options.KubeAPIServerArgs)
	if e.options.FrontProxyPerHost {
		if err := e.setFrontProxy(k); err != nil {
			return nil, err
		}
	}
	if len(e.options.Tunnels) > 0 {
		if err := e.setTunnel(k, e.options.Tunnels[len(e.KubeAPIServers)]); err != nil {
			return nil, err
		}
	}
	return k, e.runKubeAPIServer(ctx, k, name)
}

// setFrontProxy makes a kube-apiserver read its own front-proxy key pair and its CA from one
// directory, as the output of certgen init recommends.
func (e *Environment) setFrontProxy(k *KubeAPIServer) error {
	k.FrontProxyClientDir = filepath.Join(e.Dir, k.host.name, certs.FrontProxyClientDir)
	if err := e.pki.frontProxy(k.FrontProxyClientDir); err != nil {
		return err
	}
	k.command = override(k.command, []string{
		"--requestheader-client-ca-file=" + filepath.Join(k.FrontProxyClientDir, certs.BundleFile),
		"--proxy-client-cert-file=" + filepath.Join(k.FrontProxyClientDir, certs.CertFile),
		"--proxy-client-key-file=" + filepath.Join(k.FrontProxyClientDir, certs.KeyFile),
	})
	return nil
}

func (e *Environment) routingArgs(h *host) []string {
	switch e.options.Network {
	case EndpointRouting:
		return []string{"--advertise-address=" + h.address, "--enable-aggregator-routing=true"}
	case ClusterIPRouting:
		return []string{"--advertise-address=" + h.address, "--enable-aggregator-routing=false"}
	default:
		// The Service "kubernetes" cannot have loopback endpoints, and an ExternalName Service
		// works only without aggregator routing. A machine without a default route has no other
		// address to advertise.
		return []string{"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--enable-aggregator-routing=false"}
	}
}

func (e *Environment) runKubeAPIServer(ctx context.Context, k *KubeAPIServer, name string) error {
	var err error
	if k.process, err = e.processes.start(k.host, name, k.command); err != nil {
		return err
	}
	return k.ready(ctx, startTimeout, func(ctx context.Context) error {
		config, err := e.adminOf(k)
		if err != nil {
			return err
		}
		return requestReadyz(ctx, config)
	})
}

// requestReadyz requests /readyz of a server and returns its failed checks as an error.
func requestReadyz(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return getOK(ctx, client, config.Host+"/readyz?verbose")
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, failedChecks(resp.Body))
	}
	return nil
}
