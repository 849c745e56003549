// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"example.com/extension-apiserver/internal/certs"
)

// etcd is one etcd process and its client certificate.
type etcd struct {
	*process
	host    *host
	url     string
	client  string // name of the client certificate in the pki
	command []string
	member  EtcdMember
}

// EtcdMember describes the only member of an etcd, for a restore.
type EtcdMember struct{ Name, DataDir, PeerURL string }

// startEtcd starts an etcd that accepts only clients with a certificate of the etcd client CA.
func (e *Environment) startEtcd(ctx context.Context, h *host, name string) (*etcd, error) {
	clientPort, err := h.port(2379)
	if err != nil {
		return nil, err
	}
	peerPort, err := h.port(2380)
	if err != nil {
		return nil, err
	}
	if err := e.pki.serving(name, localNames(h)); err != nil {
		return nil, err
	}
	if err := e.pki.client(e.pki.etcd, name+"-client", name+"-client"); err != nil {
		return nil, err
	}
	et := &etcd{host: h, url: fmt.Sprintf("https://%s:%d", h.address, clientPort), client: name + "-client"}
	peer := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	et.member = EtcdMember{Name: name, DataDir: filepath.Join(e.Dir, name), PeerURL: peer}
	et.command = []string{
		e.Binary("etcd"),
		"--name=" + name,
		"--data-dir=" + et.member.DataDir,
		"--listen-client-urls=" + et.url,
		"--advertise-client-urls=" + et.url,
		// A single member has no peers, so the address is not used.
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + name + "=" + peer,
		"--cert-file=" + e.pki.cert(name),
		"--key-file=" + e.pki.key(name),
		"--client-cert-auth",
		"--trusted-ca-file=" + e.pki.cert("etcd-client-ca"),
		// The HTTP gateway is a client of its own server and would need a client certificate. It
		// is not used.
		"--enable-grpc-gateway=false",
		"--log-level=warn",
	}
	return et, e.runEtcd(ctx, et)
}

func (e *Environment) runEtcd(ctx context.Context, et *etcd) error {
	var err error
	if et.process, err = e.processes.start(et.host, et.member.Name, et.command); err != nil {
		return err
	}
	return et.ready(ctx, startTimeout, func(ctx context.Context) error { return e.askEtcd(ctx, et) })
}

// StopEtcd stops the external etcd of the extension API servers and returns its member. Stop all
// servers first. It returns an error if the etcd is embedded.
func (e *Environment) StopEtcd() (EtcdMember, error) {
	if e.external == nil {
		return EtcdMember{}, errEmbedded
	}
	return e.external.member, e.external.stop()
}

// StartEtcd starts the external etcd again at the same address. It returns when etcd responds.
func (e *Environment) StartEtcd(ctx context.Context) error {
	if e.external == nil {
		return errEmbedded
	}
	return e.runEtcd(ctx, e.external)
}

func (e *Environment) askEtcd(ctx context.Context, et *etcd) error {
	client, err := e.etcdClient(ctx, et)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Get(ctx, "health")
	return err
}

func (e *Environment) etcdClient(ctx context.Context, et *etcd) (*clientv3.Client, error) {
	config, err := e.etcdTLS(et)
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Context:     ctx,
		Endpoints:   []string{et.url},
		TLS:         config,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dialer(et.host))},
	})
}

func (e *Environment) etcdTLS(et *etcd) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(e.pki.cert(et.client), e.pki.key(et.client))
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs: certs.Bundle{e.pki.control.Certificate}.Pool(), Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12,
	}, nil
}

var errEmbedded = errors.New(
	"connect to the etcd of the servers: it is embedded; set ExternalEtcd in the options")

// EtcdClient returns a client of the external etcd of the extension API servers. The caller must
// close it.
func (e *Environment) EtcdClient(ctx context.Context) (*clientv3.Client, error) {
	if e.external == nil {
		return nil, errEmbedded
	}
	return e.etcdClient(ctx, e.external)
}

// EtcdMetrics returns the metrics of the external etcd.
func (e *Environment) EtcdMetrics(ctx context.Context) ([]byte, error) {
	if e.external == nil {
		return nil, errEmbedded
	}
	config, err := e.etcdTLS(e.external)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: config, DialContext: e.external.host.dial}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.external.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of etcd: %w", err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
