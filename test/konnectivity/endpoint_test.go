// SPDX-License-Identifier: Apache-2.0

//go:build measure

package konnectivity

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"example.com/extension-apiserver/pkg/envtest"
)

// endpointPort is the port of the endpoint at the end of the test's own tunnels.
const endpointPort = 8233

// endpoint listens on the node. It responds to "flood" with more bytes than a stalled reader
// accepts, and echoes anything else.
func endpoint(t *testing.T, e *envtest.Environment) {
	t.Helper()
	listener, err := e.ListenOnNode(endpointPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go respond(conn)
		}
	}()
}

func respond(conn net.Conn) {
	defer conn.Close()
	received := make([]byte, len("flood"))
	for {
		n, err := conn.Read(received)
		if err != nil {
			return
		}
		data := received[:n]
		if string(data) == "flood" {
			data = bytes.Repeat([]byte("x"), stalled)
		}
		if _, err := conn.Write(data); err != nil {
			return
		}
	}
}

// dialer connects to the endpoint through the konnectivity server, as kube-apiserver does.
type dialer func(context.Context) (net.Conn, error)

func (d dialer) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := d(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func newDialer(e *envtest.Environment, mode envtest.Mode) dialer {
	socket, address := filepath.Join(e.Dir, "control-plane-1", "konnectivity-server.socket"),
		fmt.Sprintf("%s:%d", envtest.NodeAddress, endpointPort)
	if mode == envtest.GRPCOverUDS {
		return func(ctx context.Context) (net.Conn, error) { return grpcTunnel(ctx, socket, address) }
	}
	return func(ctx context.Context) (net.Conn, error) { return httpConnect(ctx, socket, address) }
}

// grpcTunnel uses the same library as kube-apiserver.
func grpcTunnel(ctx context.Context, socket, address string) (net.Conn, error) {
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.WithoutCancel(ctx), socket,
		grpc.WithContextDialer(func(ctx context.Context, socket string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		// The initial value of gRPC. If it is set, it does not grow, and a stalled reader accepts
		// the same number of bytes each time.
		grpc.WithInitialWindowSize(64<<10),
		// The mode of the socket protects it.
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

func httpConnect(ctx context.Context, socket, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", address); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("CONNECT: %s", resp.Status), resp.Body.Close(), conn.Close())
	}
	return conn, resp.Body.Close()
}

// echoes returns the number of tunnels that echo a byte within two seconds.
func echoes(t *testing.T, all []net.Conn) int {
	t.Helper()
	responded := make(chan error, len(all))
	for _, conn := range all {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatalf("a tunnel is closed: %v", err)
		}
		go func() { // until the tunnel ends: connections of konnectivity's client have no deadline
			_, err := io.ReadFull(conn, make([]byte, 1))
			responded <- err
		}()
	}
	timeout := time.After(requestTimeout)
	for count := range all {
		select {
		case err := <-responded:
			if err != nil {
				t.Errorf("a tunnel is closed: %v", err)
			}
		case <-timeout:
			return count
		}
	}
	return len(all)
}
