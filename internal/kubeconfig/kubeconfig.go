// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig gives a user a client certificate and the kubeconfig that goes with it.
//
// Called by cmd/certgen. Calls internal/certs for everything about certificates and files, and client-go for the
// format, which internal/certs must not know.
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

// clusterName is kubeadm's.
const clusterName = "kubernetes"

// Options say whose certificate is made, by which CA, and which server it is for.
type Options struct {
	Client       certs.ClientOptions
	CA           string // CA of the cluster's users, as certs.ReadCA finds it
	Server       string // URL, https
	ServerCAFile string // CAs that vouch for the server
	Out          string // file for the kubeconfig
	// Embed puts certificate, key and CAs into the kubeconfig. Without it they are files, which clients of client-go
	// read again every 5 minutes: a new certificate is then used without a restart.
	Embed bool
	Now   func() time.Time // nil means time.Now
}

// Write issues a client certificate and writes the kubeconfig, mode 0600. Unless it is embedded, the pair is in the
// directory Out.d beside it, and a second Write with the same options replaces the pair. A file with other content is
// not overwritten. Wrong options give *certs.InvalidError, files in the way *certs.RefusedError.
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
	// First, since it is what may be refused. A kubeconfig without its pair is completed by the next Write.
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

// encode refers to files by paths relative to the kubeconfig, as kubectl writes them.
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
