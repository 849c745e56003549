// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig issues a client certificate for a user and writes the kubeconfig for it.
//
// cmd/certgen calls it. It uses internal/certs for certificates and files, and client-go for the
// format, on which internal/certs must not depend.
package kubeconfig

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/certs"
)

// clusterName is the name that kubeadm uses.
const clusterName = "kubernetes"

// Options specify the user of the certificate, the CA that issues it, and the server.
type Options struct {
	Client       certs.ClientOptions
	CA           string // CA of the cluster's users, as certs.ReadCA finds it
	Server       string // URL, https
	ServerCAFile string // CAs with which the server is verified
	Out          string // file for the kubeconfig
	// Embed puts the certificate, the key and the CAs into the kubeconfig. Without it they are
	// files, which clients of client-go read again every 5 minutes, so that a new certificate is
	// used without a restart.
	Embed bool
	Now   func() time.Time // nil means time.Now
}

// Write issues a client certificate and writes the kubeconfig with mode 0600. Unless it is
// embedded, the key pair is in the directory Out.d beside it, and a second Write with the same
// options replaces the key pair. A file with other content is not overwritten. Write returns
// *certs.InvalidError for invalid options and *certs.RefusedError for conflicting files.
func Write(ctx context.Context, opts Options) (*certs.Report, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	serverCAs, err := certs.ReadBundle(opts.ServerCAFile)
	if err != nil {
		return nil, fmt.Errorf("read CAs of the server: %w", err)
	}
	ca, err := certs.ReadCA(opts.CA, opts.Now)
	if err != nil {
		return nil, err
	}
	pair, err := ca.IssueClient(opts.Client)
	if err != nil {
		return nil, err
	}
	data, err := opts.encode(pair, serverCAs.PEM())
	if err != nil {
		return nil, err
	}
	action := certs.Made
	if _, err := os.Stat(opts.Out); err == nil {
		action = certs.Replaced
	}
	// The kubeconfig is written first, since it may be refused. If its key pair is missing, the
	// next Write completes it.
	if err := certs.CreateFile(opts.Out, certs.File{Data: data, Mode: 0o600}); err != nil {
		return nil, err
	}
	if !opts.Embed {
		_, err := certs.Locked(ctx, certs.Dir(opts.pairDir()), func() (struct{}, error) {
			return struct{}{}, pair.Write(opts.pairDir(), certs.Bundle{ca.Certificate})
		})
		if err != nil {
			return nil, err
		}
	}
	return opts.report(action, pair.Certificate, ca.Certificate), nil
}

func (o Options) validate() error {
	errs := []error{
		o.Client.Validate(),
		certs.Require("ca", o.CA,
			"the CA of the cluster's users: a directory with tls.crt and tls.key, or a file such as ca.crt with "+
				"ca.key beside it"),
		certs.Require("server-ca", o.ServerCAFile, "the file with the CAs that verify the server"),
		certs.Require("out", o.Out, "a file for the kubeconfig"),
	}
	if u, err := url.Parse(o.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, &certs.InvalidError{Field: "server", Value: o.Server,
			Reason: "expected a URL such as https://10.0.0.1:6443"})
	}
	return errors.Join(errs...)
}

func (o Options) pairDir() string { return o.Out + ".d" }

// encode returns the kubeconfig. It refers to files by paths relative to the kubeconfig, as
// kubectl does.
func (o Options) encode(pair *certs.KeyPair, serverCA []byte) ([]byte, error) {
	cluster := &clientcmdapi.Cluster{Server: o.Server, CertificateAuthorityData: serverCA}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: pair.CertPEM, ClientKeyData: pair.KeyPEM}
	if !o.Embed {
		dir := filepath.Base(o.pairDir())
		user = &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(dir, certs.CertFile),
			ClientKey: filepath.Join(dir, certs.KeyFile)}
		from, fromErr := filepath.Abs(filepath.Dir(o.Out))
		to, toErr := filepath.Abs(o.ServerCAFile)
		path, relErr := filepath.Rel(from, to)
		if err := errors.Join(fromErr, toErr, relErr); err != nil {
			return nil, fmt.Errorf("compute relative path from %s to %s: %w", o.Out, o.ServerCAFile, err)
		}
		cluster = &clientcmdapi.Cluster{Server: o.Server, CertificateAuthority: path}
	}
	config := clientcmdapi.NewConfig()
	name := o.Client.User + "@" + clusterName
	config.Clusters[clusterName], config.AuthInfos[o.Client.User] = cluster, user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: o.Client.User}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

func (o Options) report(action certs.Action, cert, ca *x509.Certificate) *certs.Report {
	item := certs.Item{Name: o.Client.User, Path: o.Out, Action: action, Reason: "requested",
		Certificate: new(certs.Describe(cert, o.Now()))}
	if o.Embed {
		item.Notes = append(item.Notes, "certificate and key are embedded: clients read them only at startup")
	} else {
		item.Notes = append(item.Notes,
			"certificate and key are in "+o.pairDir()+"; run this command again before they expire")
	}
	if cert.NotAfter.Equal(ca.NotAfter) {
		item.Notes = append(item.Notes, "expires together with its CA: rotate the CA first")
	}
	report := certs.NewReport("KubeconfigReport", item)
	report.Next = []string{"kubectl --kubeconfig " + o.Out + " auth whoami"}
	return report
}
