// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs/verify"
)

// maxSocketPath: sun_path of unix(7) has 108 bytes, the last of which is 0.
const maxSocketPath = 107

func checkSocketPath(s *set) []verify.Finding {
	var out []verify.Finding
	_, where := s.selection()
	dialled := s.socket()
	check := func(object, name string) {
		if len(name) > maxSocketPath {
			out = append(out, finding(object, "the path of the socket has %d bytes, the kernel takes %d: %s", len(name), maxSocketPath, name))
		}
		if !path.IsAbs(name) {
			out = append(out, finding(object, "the path of the socket is %q; expected an absolute path, without unix://", name))
		}
	}
	if dialled != "" {
		check(where, dialled)
	}
	for _, p := range s.servers {
		name := p.options.text("uds-name")
		if name == "" {
			continue
		}
		if name != dialled {
			check(p.String(), name)
		}
		// Through other mounts another path could be the same file; nobody reads such a set easily.
		if dialled != "" && name != dialled {
			out = append(out, finding(p.String(), "--uds-name=%s, kube-apiserver dials %s", name, dialled))
		}
	}
	return out
}

// checkSocketMount: both see the directory of the socket, from the same volume.
func checkSocketMount(s *set) []verify.Finding {
	name := s.socket()
	if name == "" {
		return nil
	}
	var out []verify.Finding
	sources := map[string]*program{}
	for _, p := range slices.Concat(s.servers, s.apiServers) {
		found := func(format string, args ...any) {
			out = append(out, verify.Finding{Object: p.String(), Evidence: p.container.Name + ": " + fmt.Sprintf(format, args...)})
		}
		volume, mount := p.volumeAt(name)
		switch {
		case mount == nil:
			found("no volume is mounted at %s", path.Dir(name))
			continue
		case volume == nil:
			found("the volume %s is mounted and not there", mount.Name)
			continue
		case mount.MountPath == name || mount.SubPath != "" || mount.SubPathExpr != "":
			found("the socket itself is mounted at %s; each start of the server makes another, which the mount does not show", mount.MountPath)
			continue
		case mount.ReadOnly && slices.Contains(s.servers, p):
			found("%s is mounted read-only, and the server makes the socket in it", mount.MountPath)
		}
		sources[source(volume, p)] = p
	}
	if len(out) == 0 && len(sources) > 1 {
		out = append(out, finding(s.servers[0].String(), "%s is in different volumes of kube-apiserver and of the server", path.Dir(name)))
	}
	return out
}

// source tells volumes apart: by their directory on the node, or by their name in a pod.
func source(v *corev1.Volume, p *program) string {
	if v.HostPath != nil {
		return "hostPath " + path.Clean(v.HostPath.Path)
	}
	return p.String() + " " + v.Name
}

// checkSocketGroup: the server makes the socket with mode 0770, so kube-apiserver needs its user, its group, or to be root. Without users in
// the manifests the images decide: kube-apiserver's is root, the server's is 65532.
func checkSocketGroup(s *set) []verify.Finding {
	if s.socket() == "" {
		return nil
	}
	var out []verify.Finding
	for _, server := range s.servers {
		user, group := server.user()
		if user == nil || group == nil {
			out = append(out, verify.Finding{Object: server.String(), Evidence: "user and group of the server are not set, so the image decides to whom the socket belongs",
				Fix: "set runAsUser and runAsGroup to 65532, which is the user of the image"})
			continue
		}
		for _, k := range s.apiServers {
			own, _ := k.user()
			if own == nil || *own == 0 || *own == *user || slices.Contains(k.groups(), *group) {
				continue
			}
			out = append(out, finding(k.String(), "kube-apiserver runs as user %d with groups %d; the socket belongs to user %d and group %d, mode 0770",
				*own, k.groups(), *user, *group))
		}
	}
	return out
}

// groups are all of the program's process that the manifest gives it.
func (p *program) groups() []int64 {
	var out []int64
	if _, group := p.user(); group != nil {
		out = append(out, *group)
	}
	if pod := p.pod.Spec.SecurityContext; pod != nil {
		out = append(out, pod.SupplementalGroups...)
		if pod.FSGroup != nil {
			out = append(out, *pod.FSGroup)
		}
	}
	return out
}

// checkNonrootVolumes: kubelet makes what is missing for root alone, and the server is not root.
func checkNonrootVolumes(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range slices.Concat(s.servers, s.agents) {
		if user, _ := p.user(); user != nil && *user == 0 {
			out = append(out, verify.Finding{Object: p.String(), Evidence: "runs as root", Fix: "set runAsUser 65532, and give it the files"})
		}
		for _, m := range p.container.VolumeMounts {
			i := slices.IndexFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if i < 0 || p.pod.Spec.Volumes[i].HostPath == nil {
				continue
			}
			kind := p.pod.Spec.Volumes[i].HostPath.Type
			if kind != nil && (*kind == corev1.HostPathDirectoryOrCreate || *kind == corev1.HostPathFileOrCreate) {
				out = append(out, finding(p.String(), "the volume %s has the type %s", m.Name, *kind))
			}
		}
	}
	return out
}
