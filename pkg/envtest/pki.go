// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/extension-apiserver/internal/certs"
)

// The Service in front of our servers. Tests and manifests use the same names.
const (
	Namespace      = "workshop-system"
	ServiceName    = "extension-apiserver"
	serviceAccount = "extension-apiserver"
)

// pki holds the trust of one control plane. The CAs are kept between starts on one directory: kube-apiserver adds each
// new one to the ConfigMap of trusted CAs and never takes one out before it expires.
type pki struct {
	dir     string
	options certs.InitOptions // what Init made
	// clients signs users and the control plane's own clients; it is not the front proxy's CA, which a user's
	// certificate must not come from. control signs what etcd and kube-apiserver serve; etcd signs etcd's clients.
	clients, control, etcd *certs.CA
}

// agentServerNames are the addresses at which agents reach konnectivity's servers; without any there is no
// konnectivity.
func newPKI(ctx context.Context, dir string, agentServerNames []string) (*pki, error) {
	p := &pki{dir: dir}
	p.options = certs.InitOptions{Dir: dir, Service: certs.Service{Name: ServiceName, Namespace: Namespace}}
	if len(agentServerNames) > 0 {
		p.options.With = []string{certs.SetFrontProxy, certs.SetKonnectivity}
		p.options.KonnectivityAgentServerNames = agentServerNames
	}
	if _, err := certs.Init(ctx, p.options); err != nil {
		return nil, err
	}
	var errs [3]error
	p.clients, errs[0] = p.ca("client-ca", x509.ExtKeyUsageClientAuth)
	p.control, errs[1] = p.ca("control-plane-ca", x509.ExtKeyUsageServerAuth)
	p.etcd, errs[2] = p.ca("etcd-client-ca", x509.ExtKeyUsageClientAuth)
	return p, errors.Join(append(errs[:], p.serviceAccountKey())...)
}

func (p *pki) cert(name string) string { return filepath.Join(p.dir, name, certs.CertFile) }
func (p *pki) key(name string) string  { return filepath.Join(p.dir, name, certs.KeyFile) }

// ca reads a CA, or makes it the first time.
func (p *pki) ca(name string, usage x509.ExtKeyUsage) (*certs.CA, error) {
	certPEM, err := os.ReadFile(p.cert(name))
	if err == nil {
		keyPEM, err := os.ReadFile(p.key(name))
		if err != nil {
			return nil, fmt.Errorf("read key of %s: %w", name, err)
		}
		return certs.ParseCA(certPEM, keyPEM, nil)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	ca, err := certs.NewCA(certs.CAOptions{Name: name, Usage: usage})
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return ca, ca.Write(filepath.Join(p.dir, name), nil)
}

// kubeadmNames are all names that kubeadm gives the certificate of a kube-apiserver: the node, the Service kubernetes
// and its address, the advertised address, and the control plane endpoint if there is one. localhost and 127.0.0.1 are
// not among them.
func kubeadmNames(h *host, endpoint ...string) certs.ServingOptions {
	return certs.ServingOptions{
		DNSNames: []string{h.name, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPs: append(endpoint, firstService, h.address),
	}
}

// localNames are those of the other parts.
func localNames(h *host) certs.ServingOptions {
	return certs.ServingOptions{DNSNames: []string{"localhost"}, IPs: []string{h.address, "127.0.0.1"}}
}

// serving makes the certificate of a part of the control plane.
func (p *pki) serving(name string, names certs.ServingOptions) error {
	pair, err := p.control.IssueServing(names)
	if err != nil {
		return fmt.Errorf("issue certificate of %s: %w", name, err)
	}
	return pair.Write(filepath.Join(p.dir, name), nil)
}

// client makes a client certificate.
func (p *pki) client(ca *certs.CA, name, user string, groups ...string) error {
	pair, err := ca.IssueClient(certs.ClientOptions{User: user, Groups: groups, AllowSystemMasters: true})
	if err != nil {
		return fmt.Errorf("issue client certificate of %s: %w", user, err)
	}
	return pair.Write(filepath.Join(p.dir, name), nil)
}

// frontProxy makes one more client certificate of the front proxy in dir, with its CA.
func (p *pki) frontProxy(dir string) error {
	ca, err := p.ca(certs.FrontProxyCADir, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return err
	}
	pair, err := ca.IssueClient(certs.ClientOptions{User: certs.FrontProxyUser})
	if err != nil {
		return fmt.Errorf("issue client certificate of the front proxy: %w", err)
	}
	return pair.Write(dir, certs.Bundle{ca.Certificate})
}

// serviceAccountKey makes the key that signs ServiceAccount tokens, once.
func (p *pki) serviceAccountKey() error {
	path := filepath.Join(p.dir, "service-account", certs.KeyFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := certs.NewKey()
	if err != nil {
		return err
	}
	private, err := certs.EncodePrivateKey(key)
	if err != nil {
		return err
	}
	public, err := certs.EncodePublicKey(key)
	if err != nil {
		return err
	}
	return certs.WriteFiles(filepath.Dir(path), map[string]certs.File{
		certs.KeyFile: {Data: private, Mode: 0o600},
		"tls.pub":     {Data: public, Mode: 0o644},
	})
}
