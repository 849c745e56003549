// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// workload is what makes pods, or one static pod.
type workload struct {
	file, kind string
	meta       metav1.ObjectMeta
	replicas   int32 // 0 for kinds whose number nobody says here: static pods and DaemonSets
	pod        corev1.PodTemplateSpec
}

func (w *workload) String() string { return w.file + " " + w.kind + "/" + w.meta.Name }

// program is a container of a workload that has a role.
type program struct {
	*workload
	container corev1.Container
	sidecar   bool // it shares its pod with kube-apiserver
	options   options
}

// The containers' names by which roles are known, and the last part of the images' names.
const (
	serverName, serverImage       = "konnectivity-server", "proxy-server"
	agentName, agentImage         = "konnectivity-agent", "proxy-agent"
	apiServerName, apiServerImage = "kube-apiserver", "kube-apiserver"
)

func (s *set) findPrograms() {
	for _, w := range s.workloads() {
		containers := slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers)
		beside := slices.ContainsFunc(containers, func(c corev1.Container) bool { return hasRole(c, apiServerName, apiServerImage) })
		for _, c := range containers {
			p := &program{workload: w, container: c, sidecar: beside}
			switch {
			case hasRole(c, serverName, serverImage):
				p.options = s.parseOptions(p, serverFlags)
				s.servers = append(s.servers, p)
			case hasRole(c, agentName, agentImage):
				p.options = s.parseOptions(p, agentFlags)
				s.agents = append(s.agents, p)
			case hasRole(c, apiServerName, apiServerImage):
				p.options = s.parseOptions(p, apiServerFlags)
				s.apiServers = append(s.apiServers, p)
			}
		}
	}
}

func hasRole(c corev1.Container, name, image string) bool {
	repository, _, _ := splitImage(c.Image)
	return c.Name == name || path.Base(repository) == image
}

// splitImage takes an image's reference apart.
func splitImage(reference string) (repository, tag, digest string) {
	repository, digest, _ = strings.Cut(reference, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository, tag = repository[:i], repository[i+1:]
	}
	return repository, tag, digest
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

// selects tells whether a selector of labels finds the workload's pods in their namespace.
func (w *workload) selects(namespace string, selector labels.Selector) bool {
	return w.meta.Namespace == namespace && selector.Matches(labels.Set(w.pod.Labels))
}

// volumeAt returns the volume that the program sees at a path: the one with the longest mount path, and that mount.
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

// user returns user and group of the program's process; nil for those that the image says.
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

// expand does what kubelet does with $(NAME) in arguments. What is known in the cluster only, such as the address of a node, stays as it is;
// what no environment variable stands for is returned as missing.
func (s *set) expand(p *program, arg string) (expanded string, missing []string) {
	expanded = variable.ReplaceAllStringFunc(arg, func(match string) string {
		name := variable.FindStringSubmatch(match)[1]
		i := slices.IndexFunc(p.container.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if i < 0 {
			missing = append(missing, match)
			return match
		}
		e := p.container.Env[i]
		if e.ValueFrom == nil {
			return e.Value
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			for _, cm := range all[*corev1.ConfigMap](s) {
				if value, ok := cm.Data[ref.Key]; ok && cm.Name == ref.Name && cm.Namespace == p.meta.Namespace {
					return value
				}
			}
			missing = append(missing, fmt.Sprintf("%s (ConfigMap %s, key %s)", match, ref.Name, ref.Key))
		}
		return match
	})
	return expanded, missing
}
