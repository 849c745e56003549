// SPDX-License-Identifier: Apache-2.0

// Package etcdclient creates the configuration of a client for the etcd of a server, according to
// the server's flags.
package etcdclient

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Config returns the configuration of etcd's client. For an embedded etcd, it has no endpoints.
func Config(ctx context.Context, t storagebackend.TransportConfig) (clientv3.Config, error) {
	config := clientv3.Config{Context: ctx, Endpoints: t.ServerList}
	if t.TrustedCAFile != "" || t.CertFile != "" {
		tlsConfig, err := transport.TLSInfo{CertFile: t.CertFile, KeyFile: t.KeyFile,
			TrustedCAFile: t.TrustedCAFile}.ClientConfig()
		if err != nil {
			return config, fmt.Errorf("load etcd client certificate: %w", err)
		}
		config.TLS = tlsConfig
	}
	return config, nil
}
