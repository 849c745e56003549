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
	// callTimeout is for a call that etcd answers at once when it is well; an election takes 1 s.
	callTimeout = 5 * time.Second
	// callRetries, each after 25 ms, outlast an election.
	callRetries = 60
	// keepAlive notices a peer that vanished in the middle of a snapshot or defragmentation, which have no deadline:
	// how long they take depends on the size of the database.
	keepAlive = 10 * time.Second
)

// Target is the etcd of a server, as the flags of the server name it.
type Target struct {
	// DataDir is the server's data directory; it counts where Transport names no servers.
	DataDir string
	// Transport says where the members of an external cluster are, and with which files to connect.
	Transport storagebackend.TransportConfig
	// Prefix is what the keys of the server's objects begin with.
	Prefix string
}

// endpoints returns where the members are. For a server that is not running, or that belongs to somebody else, it
// returns an error.
func (t Target) endpoints(ctx context.Context) ([]string, error) {
	if len(t.Transport.ServerList) > 0 {
		return t.Transport.ServerList, nil
	}
	dataDir, err := filepath.Abs(t.DataDir)
	if err != nil {
		return nil, fmt.Errorf("resolve --data-dir: %w", err)
	}
	// etcd's client would try for seconds and then not say why.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", SocketPath(dataDir))
	if err != nil {
		return nil, fmt.Errorf(
			"connect to the embedded etcd in --data-dir %s: %w; check the directory, that the server runs and that you "+
				"are its user, or set --etcd-servers for an external etcd", t.DataDir, err)
	}
	conn.Close()
	return []string{"unix://" + SocketPath(dataDir)}, nil
}

// config is for one member: etcd's client spreads calls over all endpoints it has.
func (t Target) config(ctx context.Context, endpoint string) (clientv3.Config, error) {
	config, err := etcdclient.Config(ctx, t.Transport)
	config.Endpoints = []string{endpoint}
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = keepAlive, keepAlive
	config.MaxUnaryRetries = callRetries
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	// Errors are returned; the log would tell each attempt, as JSON.
	config.Logger = zap.NewNop()
	return config, err
}

// failFast undoes what etcd's client does by default: waiting for a connection until the deadline, whose error does not
// say why there was none.
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
