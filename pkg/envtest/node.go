// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// addPod adds an address to the host, to which no other host has a route.
func (h *host) addPod(name string, number int) (*host, error) {
	pod := &host{name: name, address: fmt.Sprintf("%s%d", podNetwork, number), ns: h.ns}
	err := h.onThread(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(pod.address + "/32")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, addr)
	})
	if err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	return pod, nil
}

// setRoute adds or removes a route from the host of a kube-apiserver through the node to pods.
func (e *Environment) setRoute(k *KubeAPIServer, routed bool) error {
	_, pods, err := net.ParseCIDR(podNetwork + "0/24")
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: pods, Gw: net.ParseIP(NodeAddress)}
	err = k.host.onThread(func() error {
		if routed {
			return netlink.RouteReplace(route)
		}
		return netlink.RouteDel(route)
	})
	if !routed && errors.Is(err, syscall.ESRCH) {
		return nil // there was no route
	}
	return err
}

// SetLink connects the node to the other hosts, or disconnects it.
func (e *Environment) SetLink(up bool) error {
	return (&host{name: "bridge", ns: e.lan.bridge}).onThread(func() error {
		link, err := netlink.LinkByName(fmt.Sprintf("port%d", nodeNumber))
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}

// BlackHole returns the address of a pod that never responds: packets to it leave the node and
// are lost.
func (e *Environment) BlackHole() (string, error) {
	address := podNetwork + "200"
	return address, e.node.onThread(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		// Without an entry, the kernel sends ARP requests and reports after 3 s that the host is
		// unreachable.
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(address),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, // locally administered and unused
		})
	})
}

// Dial connects from the host of the kube-apiserver. The address must be numeric.
func (k *KubeAPIServer) Dial(ctx context.Context, address string) (net.Conn, error) {
	return k.host.dial(ctx, "tcp", address)
}

// Address returns the address of the konnectivity server of the kube-apiserver, to which agents
// connect.
func (k *KubeAPIServer) Address() string { return fmt.Sprintf("%s:%d", k.host.address, agentPort) }

// Address returns the host and port on which the server listens.
func (s *Server) Address() string { return strings.TrimPrefix(s.URL, "https://") }

// Listen listens on a port of the server's host.
func (s *Server) Listen(port int) (net.Listener, error) { return s.host.listen(port) }

// ListenOnNode listens on a port of the node.
func (e *Environment) ListenOnNode(port int) (net.Listener, error) { return e.node.listen(port) }

func (h *host) listen(port int) (listener net.Listener, err error) {
	err = h.onThread(func() error {
		listener, err = net.Listen("tcp", fmt.Sprintf("%s:%d", h.address, port))
		return err
	})
	return listener, err
}

// DialFromNode connects from the node. The address must be numeric.
func (e *Environment) DialFromNode(ctx context.Context, address string) (net.Conn, error) {
	return e.node.dial(ctx, "tcp", address)
}
