// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is what makes pods, or one static pod.
type workload struct {
	file, kind string
	meta       metav1.ObjectMeta
	replicas   int32 // 0 for kinds whose number is not in the manifest: static pods and DaemonSets
	pod        corev1.PodTemplateSpec
}

func (w *workload) String() string { return w.file + " " + w.kind + "/" + w.meta.Name }

// program is a container of a workload that has a role.
type program struct {
	*workload
	container corev1.Container
	flags     map[string]string // without dashes; a flag without a value is "true"
}

// The containers' names by which roles are known, and the last part of the images' names.
const (
	serverName, serverImage       = "konnectivity-server", "proxy-server"
	agentName, agentImage         = "konnectivity-agent", "proxy-agent"
	apiServerName, apiServerImage = "kube-apiserver", "kube-apiserver"
)

func (s *set) findPrograms() {
	for _, w := range s.workloads() {
		for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
			p := &program{workload: w, container: c, flags: s.flags(w, c)}
			switch {
			case hasRole(c, serverName, serverImage):
				s.servers = append(s.servers, p)
			case hasRole(c, agentName, agentImage):
				s.agents = append(s.agents, p)
			case hasRole(c, apiServerName, apiServerImage):
				s.apiServers = append(s.apiServers, p)
			}
		}
	}
}

// flags reads a container's arguments. kubeadm writes them into the command, after the program.
func (s *set) flags(w *workload, c corev1.Container) map[string]string {
	args := c.Args
	if len(c.Command) > 1 {
		args = slices.Concat(c.Command[1:], args)
	}
	out := map[string]string{}
	for i, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			continue
		case !found && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value = args[i+1]
		case !found:
			value = "true"
		}
		out[strings.TrimLeft(name, "-")] = s.expand(w, c, value)
	}
	return out
}

func hasRole(c corev1.Container, name, image string) bool {
	base, _, _ := strings.Cut(path.Base(c.Image), "@")
	base, _, _ = strings.Cut(base, ":")
	return c.Name == name || base == image
}

func (s *set) workloads() []*workload {
	var out []*workload
	for _, o := range s.objects {
		switch v := o.value.(type) {
		case *corev1.Pod:
			out = append(out, &workload{o.file, "Pod", v.ObjectMeta, 0, corev1.PodTemplateSpec{ObjectMeta: v.ObjectMeta, Spec: v.Spec}})
		case *appsv1.Deployment:
			out = append(out, &workload{o.file, "Deployment", v.ObjectMeta, replicas(v.Spec.Replicas), v.Spec.Template})
		case *appsv1.StatefulSet:
			out = append(out, &workload{o.file, "StatefulSet", v.ObjectMeta, replicas(v.Spec.Replicas), v.Spec.Template})
		case *appsv1.DaemonSet:
			out = append(out, &workload{o.file, "DaemonSet", v.ObjectMeta, 0, v.Spec.Template})
		}
	}
	return out
}

// replicas: without a number Kubernetes makes one.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// volumeAt returns the volume that the program sees at a path, and its mount: the one with the longest path.
func (p *program) volumeAt(name string) (*corev1.Volume, *corev1.VolumeMount) {
	var best *corev1.VolumeMount
	for i, m := range p.container.VolumeMounts {
		inside := name == m.MountPath || strings.HasPrefix(name, strings.TrimSuffix(m.MountPath, "/")+"/")
		if inside && (best == nil || len(m.MountPath) > len(best.MountPath)) {
			best = &p.container.VolumeMounts[i]
		}
	}
	if best == nil {
		return nil, nil
	}
	for i, v := range p.pod.Spec.Volumes {
		if v.Name == best.Name {
			return &p.pod.Spec.Volumes[i], best
		}
	}
	return nil, best
}

// user returns user and group of the program's process; nil for what the image decides.
func (p *program) user() (user, group *int64) {
	if pod := p.pod.Spec.SecurityContext; pod != nil {
		user, group = pod.RunAsUser, pod.RunAsGroup
	}
	if own := p.container.SecurityContext; own != nil {
		if own.RunAsUser != nil {
			user = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			group = own.RunAsGroup
		}
	}
	return user, group
}

var variable = regexp.MustCompile(`\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)`)

// expand replaces $(NAME) as kubelet does. What only the cluster knows, such as the address of a node, stays as it is.
func (s *set) expand(w *workload, c corev1.Container, arg string) string {
	return variable.ReplaceAllStringFunc(arg, func(match string) string {
		name := variable.FindStringSubmatch(match)[1]
		for _, e := range c.Env {
			switch {
			case e.Name != name:
			case e.ValueFrom == nil:
				return e.Value
			case e.ValueFrom.ConfigMapKeyRef != nil:
				ref := e.ValueFrom.ConfigMapKeyRef
				for _, o := range s.objects {
					if cm, ok := o.value.(*corev1.ConfigMap); ok && cm.Name == ref.Name && cm.Namespace == w.meta.Namespace {
						return cm.Data[ref.Key]
					}
				}
			}
		}
		return match
	})
}

// enabled tells whether a flag that is off by default is on.
func (p *program) enabled(flag string) bool { return p.flags[flag] == "true" }

// defaults are those of the flags that the rules compare. The option packages that have them are not imported: they would bring the
// server and the agent, and a module that is none of ours. A test compares with what the programs say.
var defaults = map[string]string{
	"mode": "grpc", "server-port": "8090", "server-count": "1", "lease-namespace": "kube-system", "lease-label": "k8s-app=konnectivity-server",
}

// flag returns the value of a flag, or its default.
func (p *program) flag(name string) string { return cmp.Or(p.flags[name], defaults[name]) }
