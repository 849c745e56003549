// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// podProblems checks the requirements of the level "restricted" for a pod as a whole, and least
// privilege.
func podProblems(r rendered) []string {
	var problems []string
	classes := only[schedulingv1.PriorityClass](r, r.objects, "PriorityClass")
	for _, w := range workloads(r, r.objects) {
		spec, problem := w.pod.Spec, func(format string, args ...any) {
			problems = append(problems, w.GetKind()+" "+w.GetName()+": "+fmt.Sprintf(format, args...))
		}
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken ||
			spec.ServiceAccountName == "" || spec.ServiceAccountName == "default" {
			problem("token of the ServiceAccount %q is mounted by itself", spec.ServiceAccountName)
		}
		hostNetwork := slices.Contains(r.variant.components, "profile-host-network")
		if spec.HostPID || spec.HostIPC || spec.HostNetwork != hostNetwork {
			problem("host's processes %t, IPC %t, network %t; only the network in its profile", spec.HostPID,
				spec.HostIPC, spec.HostNetwork)
		}
		if s := spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil ||
			*s.RunAsUser != 65532 {
			problem("runAsNonRoot and runAsUser 65532 are missing")
		} else if s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			problem("seccomp profile is %v", s.SeccompProfile)
		}
		if !slices.ContainsFunc(classes,
			func(c *schedulingv1.PriorityClass) bool { return c.Name == spec.PriorityClassName }) {
			problem("there is no priorityClass %q", spec.PriorityClassName)
		}
		if spec.NodeSelector[corev1.LabelOSStable] != string(corev1.Linux) {
			problem("node selector is %v, want %s: linux; clusters have nodes with Windows too", spec.NodeSelector,
				corev1.LabelOSStable)
		}
		if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
			problem("gets every Service as variables")
		}
		if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 {
			problem("has %d containers and %d init containers, want 1 and 0", len(spec.Containers),
				len(spec.InitContainers))
		}
	}
	return problems
}

// pinned matches an image with a version as its tag, or with a digest.
var pinned = regexp.MustCompile(`^[^:@]+(:[0-9]+/[^:@]+)?(:v[0-9][^:@]*|@sha256:[0-9a-f]{64})$`)

// containerProblems checks the requirements of "restricted" for containers, pinned images and
// resource limits.
func containerProblems(r rendered) []string {
	var problems []string
	for _, w := range workloads(r, r.objects) {
		for _, c := range w.pod.Spec.Containers {
			problem := func(format string, args ...any) {
				problems = append(problems, w.GetKind()+" "+w.GetName()+": "+fmt.Sprintf(format, args...))
			}
			if !pinned.MatchString(c.Image) || c.ImagePullPolicy != corev1.PullIfNotPresent {
				problem("image %s, policy %s; want it pinned, IfNotPresent", c.Image, c.ImagePullPolicy)
			}
			// For an image without a shell: its entrypoint, or certgen by its full path.
			if want := map[string][]string{"certgen": {"/certgen"}}[c.Name]; !slices.Equal(c.Command, want) {
				problem("command %q, want %q", c.Command, want)
			}
			s := c.SecurityContext
			if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				problem("readOnlyRootFilesystem is not true")
				continue
			}
			if s.Privileged != nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.RunAsUser != nil || s.RunAsNonRoot != nil {
				problem("securityContext grants privileges: %v", s)
			}
			if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				len(s.Capabilities.Add) > 0 {
				problem("capabilities %v, want drop of ALL", s.Capabilities)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
				c.Resources.Limits.Memory().IsZero() {
				problem("resources %v, want requests of cpu and memory, and a limit of memory", c.Resources)
			}
		}
	}
	return problems
}

// serverProblems checks the probes, and that timeouts, ports and memory settings are consistent.
func serverProblems(r rendered) []string {
	var problems []string
	w := server(r, r.objects)
	c := w.pod.Spec.Containers[0]
	for name, want := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{
		"startup": {c.StartupProbe, "/livez"}, "liveness": {c.LivenessProbe, "/livez"},
		"readiness": {c.ReadinessProbe, "/readyz?exclude=etcd-alarms&exclude=sources"},
	} {
		if p := want.probe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != want.path ||
			p.HTTPGet.Scheme != corev1.URISchemeHTTPS || p.HTTPGet.Port.StrVal != "https" {
			problems = append(problems, fmt.Sprintf("%s probe is %v, want %s at the port https, by HTTPS", name,
				p, want.path))
		}
	}
	options := serverOptions(r, c.Args)
	delay, request, watches := options.ServerRun.ShutdownDelayDuration, options.ServerRun.RequestTimeout,
		options.ServerRun.ShutdownWatchTerminationGracePeriod
	readiness := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second
	if delay < readiness {
		problems = append(problems,
			fmt.Sprintf("--shutdown-delay-duration is %s, want no less than the %s after which the pod is not ready",
				delay, readiness))
	}
	if grace := time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace < delay+request+watches {
		problems = append(problems, fmt.Sprintf("terminationGracePeriodSeconds is %s, want no less than %s + %s + %s",
			grace, delay, request, watches))
	}
	if port := int(c.Ports[0].ContainerPort); port != options.Recommended.SecureServing.BindPort ||
		c.Ports[0].Name != "https" {
		problems = append(problems, fmt.Sprintf("port is %v, --secure-port is %d", c.Ports[0],
			options.Recommended.SecureServing.BindPort))
	}
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	limit := c.Resources.Limits.Memory().Value()
	if i < 0 || c.Env[i].Value != fmt.Sprintf("%dMiB", limit*3/4>>20) {
		problems = append(problems, fmt.Sprintf("GOMEMLIMIT is not %dMiB, three quarters of the limit of memory",
			limit*3/4>>20))
	}
	return problems
}

// volumeProblems checks that volumes are whole directories, only of the Secrets that a pod needs,
// with access for its group only, and that tokens are short-lived.
func volumeProblems(r rendered) []string {
	var problems []string
	name := service(r, r.objects).Name
	allowed := map[string][]string{"server": {name + "-serving", name + "-etcd"}}
	for _, w := range workloads(r, r.objects) {
		problem := func(format string, args ...any) {
			problems = append(problems, w.GetKind()+" "+w.GetName()+": "+fmt.Sprintf(format, args...))
		}
		for _, m := range w.pod.Spec.Containers[0].VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				problem("%s is mounted by subPath, which never changes", m.Name)
			}
		}
		tokens := 0
		for _, v := range w.pod.Spec.Volumes {
			switch {
			case v.Secret != nil:
				if !slices.Contains(allowed[w.pod.Labels["app.kubernetes.io/component"]], v.Secret.SecretName) {
					problem("mounts the Secret %s", v.Secret.SecretName)
				}
				if v.Secret.DefaultMode == nil || *v.Secret.DefaultMode&0o007 != 0 {
					problem("mode of the Secret %s lets every user read", v.Secret.SecretName)
				}
			case v.Projected != nil:
				for _, s := range v.Projected.Sources {
					if s.ServiceAccountToken == nil {
						continue
					}
					tokens++
					// kube-apiserver extends a token of 3607 s to a year
					// (--service-account-extend-token-expiration).
					if seconds := *s.ServiceAccountToken.ExpirationSeconds; seconds > 3600 ||
						s.ServiceAccountToken.Audience != "" {
						problem("token has expirationSeconds %d and the audience %q", seconds,
							s.ServiceAccountToken.Audience)
					}
				}
			case v.EmptyDir != nil:
				if v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil {
					problem("volume %s is not in memory, or has no limit", v.Name)
				}
			case v.ConfigMap == nil && v.PersistentVolumeClaim == nil:
				problem("volume %s is of an unknown kind: %v", v.Name, v.VolumeSource)
			}
		}
		if tokens != 1 {
			problem("has %d tokens", tokens)
		}
	}
	return problems
}

// secretProblems checks that the manifests contain no secrets, and expose none to other readers
// than their user.
func secretProblems(r rendered) []string {
	var problems []string
	for _, s := range only[corev1.Secret](r, r.objects, "Secret") {
		if len(s.Data)+len(s.StringData) > 0 {
			problems = append(problems, "Secret "+s.Name+" has data")
		}
	}
	for _, cm := range only[corev1.ConfigMap](r, r.objects, "ConfigMap") {
		for key, value := range cm.Data {
			if strings.Contains(value, "PRIVATE KEY") || strings.Contains(value, "token:") ||
				strings.Contains(value, "password") {
				problems = append(problems, "ConfigMap "+cm.Name+" has a secret in "+key)
			}
			if strings.Contains(value, "http://") {
				problems = append(problems, fmt.Sprintf("ConfigMap %s: %s is %s, want https", cm.Name, key, value))
			}
		}
	}
	for _, w := range workloads(r, r.objects) {
		for _, c := range w.pod.Spec.Containers {
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					problems = append(problems, w.GetName()+" has a secret in its environment: "+e.Name)
				}
			}
			if len(c.EnvFrom) > 0 {
				problems = append(problems, w.GetName()+" has envFrom in its environment")
			}
		}
	}
	return problems
}

// exposedProblems checks that the API is reachable from outside only through kube-apiserver.
func exposedProblems(r rendered) []string {
	var problems []string
	services := only[corev1.Service](r, r.objects, "Service")
	if len(services) != 1 {
		problems = append(problems, fmt.Sprintf("%d Services, want 1", len(services)))
	}
	for _, s := range services {
		if s.Spec.Type != "" && s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.ExternalIPs) > 0 {
			problems = append(problems, fmt.Sprintf("Service %s has type %s and external addresses %v", s.Name,
				s.Spec.Type, s.Spec.ExternalIPs))
		}
	}
	for _, obj := range r.objects {
		if slices.Contains([]string{"Ingress", "Gateway", "HTTPRoute", "DaemonSet"}, obj.GetKind()) {
			problems = append(problems, "there is a "+obj.GetKind())
		}
	}
	return problems
}
