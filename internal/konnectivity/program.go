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
	"k8s.io/utils/ptr"

	"example.com/extension-apiserver/internal/catalogue"
)

// workload is an object that creates pods, or one static pod.
type workload struct {
	file, kind string
	meta       metav1.ObjectMeta
	replicas   int32 // 0 if the manifest does not contain it: static pods and DaemonSets
	pod        corev1.PodTemplateSpec
}

func (w *workload) String() string { return w.file + " " + w.kind + "/" + w.meta.Name }

// program is a container of a workload that has a role.
type program struct {
	*workload
	container corev1.Container
	flags     map[string]string // without dashes; a flag without a value is "true"
}

// String returns the workload, and the container if the pod has several.
func (p *program) String() string {
	if len(p.pod.Spec.InitContainers)+len(p.pod.Spec.Containers) == 1 {
		return p.workload.String()
	}
	return p.workload.String() + " container " + p.container.Name
}

// The names of containers, and the last path elements of images, that identify roles.
const (
	serverName, serverImage       = "konnectivity-server", "proxy-server"
	agentName, agentImage         = "konnectivity-agent", "proxy-agent"
	apiServerName, apiServerImage = "kube-apiserver", "kube-apiserver"
)

// role is a role in a set, with the programs that have it.
type role struct {
	name     string
	programs []*program
	missing  catalogue.Severity // of a finding that no program has the role
}

func (s *set) roles() []role {
	return []role{{apiServerName, s.apiServers, catalogue.Info}, {serverName, s.servers, catalogue.Error},
		{agentName, s.agents, catalogue.Error}}
}

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

// flags parses a container's arguments. kubeadm puts them in the command, after the program.
func (s *set) flags(w *workload, c corev1.Container) map[string]string {
	args := slices.Concat(c.Command[min(1, len(c.Command)):], c.Args)
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
			out = append(out, &workload{o.file, "Pod", v.ObjectMeta, 0,
				corev1.PodTemplateSpec{ObjectMeta: v.ObjectMeta, Spec: v.Spec}})
		case *appsv1.Deployment:
			out = append(out, &workload{o.file, "Deployment", v.ObjectMeta, ptr.Deref(v.Spec.Replicas, 1),
				v.Spec.Template})
		case *appsv1.StatefulSet:
			out = append(out, &workload{o.file, "StatefulSet", v.ObjectMeta, ptr.Deref(v.Spec.Replicas, 1),
				v.Spec.Template})
		case *appsv1.DaemonSet:
			out = append(out, &workload{o.file, "DaemonSet", v.ObjectMeta, 0, v.Spec.Template})
		}
	}
	return out
}

// volumeAt returns the volume and the mount that the program sees at a path. If several match,
// the mount with the longest path wins.
func (p *program) volumeAt(name string) (*corev1.Volume, *corev1.VolumeMount) {
	mounts := slices.DeleteFunc(slices.Clone(p.container.VolumeMounts), func(m corev1.VolumeMount) bool {
		return name != m.MountPath && !strings.HasPrefix(name, strings.TrimSuffix(m.MountPath, "/")+"/")
	})
	if len(mounts) == 0 {
		return nil, nil
	}
	best := slices.MaxFunc(mounts, func(a, b corev1.VolumeMount) int {
		return cmp.Compare(len(a.MountPath),
			len(b.MountPath))
	})
	i := slices.IndexFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == best.Name })
	if i < 0 {
		return nil, &best
	}
	return &p.pod.Spec.Volumes[i], &best
}

// user returns the user and group of the program's process; nil if the image determines it.
func (p *program) user() (user, group *int64) {
	pod, own := p.podContext(), cmp.Or(p.container.SecurityContext, &corev1.SecurityContext{})
	return cmp.Or(own.RunAsUser, pod.RunAsUser), cmp.Or(own.RunAsGroup, pod.RunAsGroup)
}

func (p *program) podContext() *corev1.PodSecurityContext {
	return cmp.Or(p.pod.Spec.SecurityContext, &corev1.PodSecurityContext{})
}

var variable = regexp.MustCompile(`\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)`)

// expand replaces $(NAME) as kubelet does. Values that only the cluster knows, such as a node's
// address, are not replaced.
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
					if cm, ok := o.value.(*corev1.ConfigMap); ok && cm.Name == ref.Name &&
						cm.Namespace == w.meta.Namespace {
						return cm.Data[ref.Key]
					}
				}
			}
		}
		return match
	})
}

// enabled reports whether a flag that is off by default is on.
func (p *program) enabled(flag string) bool { return p.flags[flag] == "true" }

//go:generate go run -modfile=../controlplane/pins/konnectivity.mod gen.go lease-label lease-namespace mode server-count server-port

// flag returns the value of a flag, or its default.
func (p *program) flag(name string) string {
	standard, generated := defaults[name]
	if !generated {
		panic("no default is generated of --" + name)
	}
	return cmp.Or(p.flags[name], standard)
}
