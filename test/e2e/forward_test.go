// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// forward opens a tunnel through kube-apiserver and kubelet to a port of a pod. It returns the
// local address, and a function that closes the tunnel.
func (c cluster) forward(ctx context.Context, namespace, pod string,
	port int) (address string, closeIt func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return "", nil, err
	}
	url := c.core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource(
		"portforward").URL()
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport},
		http.MethodPost, url),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() {
		if err != nil {
			close(stop)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		return "", nil, fmt.Errorf("forward port %d of pod %s: %w", port, pod, err)
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(stop) }, nil
}
