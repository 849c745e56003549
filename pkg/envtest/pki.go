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

// The Service in front of the extension API servers. Tests and manifests use the same names.
const (
	Namespace      = "workshop-system"
	ServiceName    = "extension-apiserver"
	serviceAccount = "extension-apiserver"
)

// pki contains the CAs of one control plane. They are reused by later starts on the same
// directory, because kube-apiserver adds each new CA to the ConfigMap of trusted CAs and does not
// remove a CA before it expires.
type pki struct {
	dir     string
	options certs.InitOptions // of certs.Init
	// clients issues certificates to users and to clients of the control plane. It is not the
	// front proxy's CA, which must not issue user certificates. control issues the serving
	// certificates of etcd and kube-apiserver. etcd issues certificates to clients of etcd.
	clients, control, etcd *certs.CA
}

// newPKI creates or reads the CAs and keys in dir. agentServerNames are the addresses at which
// agents reach the konnectivity servers. Without any, it creates no certificates for
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

// ca reads a CA, or creates it if it does not exist.
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

// kubeadmNames returns the names that kubeadm adds to the certificate of a kube-apiserver: the
// node, the Service kubernetes and its address, the advertised address, and the control plane
// endpoint if there is one. They do not include localhost and 127.0.0.1.
func kubeadmNames(h *host, endpoint ...string) certs.ServingOptions {
	return certs.ServingOptions{
		DNSNames: []string{h.name, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPs: append(endpoint, firstService, h.address),
	}
}

// localNames returns the names for the certificates of other components.
func localNames(h *host) certs.ServingOptions {
	return certs.ServingOptions{DNSNames: []string{"localhost"}, IPs: []string{h.address, "127.0.0.1"}}
}

// serving issues the serving certificate of a component of the control plane.
func (p *pki) serving(name string, names certs.ServingOptions) error {
	pair, err := p.control.IssueServing(names)
	if err != nil {
		return fmt.Errorf("issue certificate of %s: %w", name, err)
	}
	return pair.Write(filepath.Join(p.dir, name), nil)
}

// client issues a client certificate.
func (p *pki) client(ca *certs.CA, name, user string, groups ...string) error {
	pair, err := ca.IssueClient(certs.ClientOptions{User: user, Groups: groups, AllowSystemMasters: true})
	if err != nil {
		return fmt.Errorf("issue client certificate of %s: %w", user, err)
	}
	return pair.Write(filepath.Join(p.dir, name), nil)
}

// frontProxy issues an additional client certificate of the front proxy and writes it to dir with
// its CA.
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

// serviceAccountKey creates the key that signs ServiceAccount tokens, if it does not exist.
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
