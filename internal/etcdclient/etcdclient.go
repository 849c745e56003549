// SPDX-License-Identifier: Apache-2.0

// Package etcdclient connects to the etcd of a server as its flags say.
package etcdclient

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Config makes the configuration of etcd's client, without endpoints for an embedded etcd.
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
