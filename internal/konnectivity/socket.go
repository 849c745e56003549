// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"net"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/catalogue"
)

// maxSocketPath is the longest path of a Unix socket: sun_path in unix(7) has 108 bytes, the
// last of which is 0.
const maxSocketPath = 107

// checkSocket checks that both ends use the same protocol and address, and that kube-apiserver
// may connect.
func checkSocket(s *set) []catalogue.Finding {
	c, _ := s.selection()
	if c == nil {
		return nil
	}
	socket, tcp, where := s.transport()
	var out []catalogue.Finding
	if socket != "" && (!path.IsAbs(socket) || len(socket) > maxSocketPath) {
		out = append(out, finding(where,
			"socket path %q, expected an absolute path of at most %d bytes without unix://", socket,
			maxSocketPath))
	}
	mode := map[apiserver.ProtocolType]string{apiserver.ProtocolGRPC: "grpc",
		apiserver.ProtocolHTTPConnect: "http-connect"}[c.ProxyProtocol]
	for _, p := range s.servers {
		if got := p.flag("mode"); mode != "" && got != mode {
			out = append(out, finding(p.String(), "--mode=%s, but kube-apiserver uses %s", got, c.ProxyProtocol))
		}
		switch name := p.flags["uds-name"]; {
		case name != "" && tcp != nil:
			out = append(out, finding(p.String(), "--uds-name is set, but kube-apiserver connects to %s", tcp.URL))
		case socket != "" && name != socket:
			out = append(out, finding(p.String(), "--uds-name=%s, but kube-apiserver connects to %s", name, socket))
		case socket != "":
			out = append(out, s.checkGroup(p)...)
		case tcp != nil:
			out = append(out, checkAddress(p, tcp.URL)...)
		}
	}
	if len(out) == 0 && socket != "" {
		out = s.checkVolumes(socket)
	}
	return out
}

// checkAddress checks that the server listens at the address that kube-apiserver dials. It
// cannot check names, or addresses that may belong to a load balancer.
func checkAddress(p *program, dialled string) []catalogue.Finding {
	u, port, bind := parseURL(dialled), p.flag("server-port"), p.flags["server-bind-address"]
	host, listens := net.ParseIP(u.Hostname()), net.ParseIP(bind)
	if host == nil || !host.IsLoopback() && !listens.IsLoopback() {
		return nil
	}
	everywhere := bind == "" || listens.Equal(net.IPv6zero) || listens.Equal(net.IPv4zero) && host.To4() != nil
	if port == u.Port() && (everywhere || host.Equal(listens)) {
		return nil
	}
	return []catalogue.Finding{finding(p.String(),
		"--server-bind-address=%s --server-port=%s, but kube-apiserver connects to %s", bind, port, dialled)}
}

// checkVolumes checks that both programs see the directory of the socket in the same volume.
func (s *set) checkVolumes(socket string) []catalogue.Finding {
	var out []catalogue.Finding
	sources := map[string]bool{}
	for _, p := range slices.Concat(s.servers, s.apiServers) {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		volume, mount := p.volumeAt(socket)
		switch {
		case volume == nil:
			found("no volume is mounted at %s", path.Dir(socket))
			continue
		case mount.MountPath == socket || mount.SubPath != "" || mount.SubPathExpr != "":
			found("the socket itself is mounted at %s; the server creates a new socket at each start, which the mount "+
				"does not show", mount.MountPath)
		case mount.ReadOnly && slices.Contains(s.servers, p):
			found("%s is mounted read-only, but the server creates the socket in it", mount.MountPath)
		case volume.HostPath != nil && ptr.Deref(volume.HostPath.Type, "") == corev1.HostPathDirectoryOrCreate:
			found("the volume %s has the type %s: kubelet creates a directory that only root can write", volume.Name,
				*volume.HostPath.Type)
		}
		if volume.HostPath != nil {
			sources[path.Clean(volume.HostPath.Path)] = true
		} else {
			sources[p.workload.String()+" "+volume.Name] = true
		}
	}
	if len(out) == 0 && len(sources) > 1 {
		out = append(out, finding(s.servers[0].String(),
			"kube-apiserver and the server mount different volumes at %s", path.Dir(socket)))
	}
	return out
}

// checkGroup checks that kube-apiserver may open the socket. The server creates it with mode
// 0770, so kube-apiserver needs the same user or group, or must be root, which is the default of
// its image.
func (s *set) checkGroup(server *program) []catalogue.Finding {
	user, group := server.user()
	if user == nil || group == nil {
		return []catalogue.Finding{finding(server.String(),
			"user and group of the server are not set, so the image determines the owner of the socket")}
	}
	var out []catalogue.Finding
	for _, k := range s.apiServers {
		own, _ := k.user()
		if own != nil && *own != 0 && *own != *user && !slices.Contains(k.groups(), *group) {
			out = append(out, finding(k.String(),
				"kube-apiserver runs as user %d with groups %d; the socket belongs to user %d and group %d, mode 0770",
				*own, k.groups(), *user, *group))
		}
	}
	return out
}

// groups returns the groups that the manifest gives the program's process.
func (p *program) groups() []int64 {
	out := slices.Clone(p.podContext().SupplementalGroups)
	_, own := p.user()
	for _, group := range []*int64{own, p.podContext().FSGroup} {
		if group != nil {
			out = append(out, *group)
		}
	}
	return out
}
