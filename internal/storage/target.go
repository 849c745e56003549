// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"example.com/extension-apiserver/internal/etcdclient"
)

const (
	// callTimeout is the timeout of a call to which a healthy etcd responds immediately. An
	// election takes 1 s.
	callTimeout = 5 * time.Second
	// callRetries is the number of retries, each after 25 ms. Together they take longer than an
	// election.
	callRetries = 60
	// keepAlive detects a peer that disappeared during a snapshot or a defragmentation. These have
	// no deadline, because their duration depends on the size of the database.
	keepAlive = 10 * time.Second
)

// Target is the etcd of a server, as the flags of the server specify it.
type Target struct {
	// DataDir is the server's data directory. It is used if Transport lists no servers.
	DataDir string
	// Transport specifies the members of an external cluster, and the files for the connection.
	Transport storagebackend.TransportConfig
	// Prefix is the prefix of the keys of the server's objects.
	Prefix string
}

// endpoints returns the addresses of the members. It returns an error for a server that is not
// running or that belongs to another user.
func (t Target) endpoints(ctx context.Context) ([]string, error) {
	if len(t.Transport.ServerList) > 0 {
		return t.Transport.ServerList, nil
	}
	dataDir, err := filepath.Abs(t.DataDir)
	if err != nil {
		return nil, fmt.Errorf("resolve --data-dir: %w", err)
	}
	// etcd's client would retry for seconds and then not report the reason.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", SocketPath(dataDir))
	if err != nil {
		return nil, fmt.Errorf(
			"connect to the embedded etcd in --data-dir %s: %w; check the directory, that the server runs and that you "+
				"are its user, or set --etcd-servers for an external etcd", t.DataDir, err)
	}
	conn.Close()
	return []string{"unix://" + SocketPath(dataDir)}, nil
}

// config returns the configuration for one member. With several endpoints, etcd's client spreads
// calls over all of them.
func (t Target) config(ctx context.Context, endpoint string) (clientv3.Config, error) {
	config, err := etcdclient.Config(ctx, t.Transport)
	config.Endpoints = []string{endpoint}
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = keepAlive, keepAlive
	config.MaxUnaryRetries = callRetries
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	// Errors are returned. The log would contain each attempt, as JSON.
	config.Logger = zap.NewNop()
	return config, err
}

// failFast reverts a default of etcd's client: it waits for a connection until the deadline, and
// its error does not contain the reason.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoker(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

func (t Target) client(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	config, err := t.config(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd %s: %w", endpoint, err)
	}
	return client, nil
}
