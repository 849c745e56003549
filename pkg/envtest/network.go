// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Addresses of the hosts and of Services. They exist only in the namespaces of one environment,
// so all environments can use the same addresses.
const (
	hostNetwork    = "10.130.0."
	hostPrefix     = 24
	serviceNetwork = "10.131.0.0/24"
	firstService   = "10.131.0.1" // of the Service kubernetes
	// podNetwork exists only on the node, with konnectivity. No other host has a route to it.
	podNetwork = "10.132.0."
)

// host is the network of a process: the loopback of this machine, or a network namespace with its
// own address.
type host struct {
	name    string
	address string
	ns      netns.NsHandle // none on loopback
	ports   *ports         // nil with a namespace, in which every port is free
}

func loopbackHost(ports *ports) *host {
	return &host{name: "localhost", address: "127.0.0.1", ns: netns.None(), ports: ports}
}

// port returns the wanted port, or a free port on loopback.
func (h *host) port(want int) (int, error) {
	if h.ports == nil {
		return want, nil
	}
	return h.ports.take()
}

// inNamespace calls f in the network namespace of the host. The caller must have locked the OS
// thread.
func (h *host) inNamespace(f func() error) error {
	if !h.ns.IsOpen() {
		return f()
	}
	before, err := netns.Get()
	if err != nil {
		return fmt.Errorf("get network namespace: %w", err)
	}
	defer before.Close()
	if err := netns.Set(h.ns); err != nil {
		return fmt.Errorf("enter network namespace of %s: %w", h.name, err)
	}
	defer func() {
		// A thread that stayed in the wrong namespace would run other goroutines there.
		if err := netns.Set(before); err != nil {
			panic(fmt.Sprintf("leave network namespace of %s: %v", h.name, err))
		}
	}()
	return f()
}

// dial connects from the host, so that a test reaches addresses that exist only in its namespace.
// A socket stays in the namespace in which it was created. The address must be numeric, because
// name resolution would run on another thread.
func (h *host) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = h.inNamespace(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// lan is a bridge in its own namespace, to which hosts are connected by veth pairs. The
// namespaces have no names, so the kernel removes them with the last process and file descriptor
// that use them. Nothing is left after a crash.
type lan struct {
	bridge netns.NsHandle
	hosts  []*host
}

func newLAN() (*lan, error) {
	l := &lan{bridge: netns.None()}
	err := onNewNamespace(func(ns netns.NsHandle) error {
		l.bridge = ns
		return addLink(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	})
	if err != nil {
		l.close()
		return nil, fmt.Errorf("create network of hosts (needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN): %w", err)
	}
	return l, nil
}

// addHost creates a namespace with the address 10.130.0.<number>, which reaches only the other
// hosts.
func (l *lan) addHost(name string, number int) (*host, error) {
	h := &host{name: name, address: fmt.Sprintf("%s%d", hostNetwork, number), ns: netns.None()}
	port := fmt.Sprintf("port%d", number)
	err := onNewNamespace(func(ns netns.NsHandle) error {
		h.ns = ns
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: port, PeerNamespace: netlink.NsFd(l.bridge),
		}
		if err := addLink(veth); err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", h.address, hostPrefix))
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(veth, addr); err != nil {
			return fmt.Errorf("add address: %w", err)
		}
		return nil
	})
	if err == nil {
		err = (&host{name: "bridge", ns: l.bridge}).onThread(func() error { return joinBridge(port) })
	}
	if err != nil {
		if h.ns.IsOpen() {
			h.ns.Close()
		}
		return nil, fmt.Errorf("add host %s: %w", name, err)
	}
	l.hosts = append(l.hosts, h)
	return h, nil
}

// addRoutedHost creates a host with a default route. kube-proxy's rules apply to packets that are
// being sent, and without a route no packet to a ClusterIP is sent.
func (l *lan) addRoutedHost(name string, number int) (*host, error) {
	h, err := l.addHost(name, number)
	if err != nil {
		return nil, err
	}
	return h, h.onThread(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
		})
	})
}

func joinBridge(port string) error {
	bridge, err := netlink.LinkByName("br0")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func (l *lan) close() {
	for _, h := range l.hosts {
		h.ns.Close()
	}
	if l.bridge.IsOpen() {
		l.bridge.Close()
	}
}

// onThread calls f in the namespace of the host on a locked OS thread.
func (h *host) onThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return h.inNamespace(f)
}

// onNewNamespace creates a network namespace with loopback up, calls f in it, and returns to the
// previous namespace.
func onNewNamespace(f func(netns.NsHandle) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := netns.Get()
	if err != nil {
		return err
	}
	defer before.Close()
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer func() {
		if err := netns.Set(before); err != nil {
			panic(fmt.Sprintf("leave new network namespace: %v", err))
		}
	}()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err == nil {
		// kube-proxy forwards packets to other hosts.
		err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	}
	if err != nil {
		ns.Close()
		return err
	}
	return f(ns)
}

func addLink(link netlink.Link) error {
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add link %s: %w", link.Attrs().Name, err)
	}
	return netlink.LinkSetUp(link)
}

// withoutProxies removes the proxy variables of this machine, because no address in the network
// of an environment is reached through a proxy.
func withoutProxies(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}, strings.ToUpper(name))
	})
}

// noProxy disables proxies for clients of this process.
func noProxy(*http.Request) (*url.URL, error) { return nil, nil }
