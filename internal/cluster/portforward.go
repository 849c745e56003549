// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward connects to an endpoint's pod through kube-apiserver, as kubectl port-forward does. It
// uses a port on the loopback interface that exists as long as the connection. The traffic is
// TLS, which the client verifies end to end.
func (c *Cluster) forward(ctx context.Context, namespace string, e Endpoint) (net.Conn, error) {
	_, port, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, err
	}
	dialer, err := c.podDialer(namespace, e.Pod)
	if err != nil {
		return nil, fmt.Errorf("forward to pod %s/%s: %w", namespace, e.Pod, err)
	}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{"0:" + port}, stop,
		ready, io.Discard, io.Discard)
	if err != nil {
		return nil, fmt.Errorf("forward to pod %s/%s: %w", namespace, e.Pod, err)
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	conn := &forwarded{stop: sync.OnceFunc(func() { close(stop) })}
	select {
	case <-ready:
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	var ports []portforward.ForwardedPort
	if err == nil {
		ports, err = forwarder.GetPorts()
	}
	if err == nil {
		// the port that the system assigned
		conn.Conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	}
	if err != nil {
		conn.stop()
		return nil, fmt.Errorf("forward to pod %s/%s: %w", namespace, e.Pod, err)
	}
	return conn, nil
}

// podDialer returns a dialer that uses WebSocket, as kubectl does, and falls back to SPDY if the
// kube-apiserver or a proxy does not support it (KEP-4006).
func (c *Cluster) podDialer(namespace, pod string) (httpstream.Dialer, error) {
	url := c.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource(
		"portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.Config)
	if err != nil {
		return nil, err
	}
	fallback := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	return portforward.NewFallbackDialerForStreaming(websocket, fallback, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// forwarded is a connection that closes its forwarded port when it is closed.
type forwarded struct {
	net.Conn
	stop func()
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	defer f.stop()
	return f.Conn.Close()
}
