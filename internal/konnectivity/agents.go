// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// tokenFlags are those by which the server asks kube-apiserver about agents' tokens.
var tokenFlags = []string{"agent-namespace", "agent-service-account", "authentication-audience"}

func usesTokens(p *program) bool {
	return slices.ContainsFunc(tokenFlags, func(name string) bool { return p.options.text(name) != "" })
}

// checkAgentAuthentication: exactly one way, and the same on both sides.
func checkAgentAuthentication(s *set) []verify.Finding {
	var out []verify.Finding
	tokens, certificates := false, false
	for _, p := range s.servers {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		token, certificate := usesTokens(p), p.options.text("cluster-ca-cert") != ""
		switch {
		case !token && !certificate:
			found("neither --%s nor --cluster-ca-cert: whoever reaches the server is an agent and gets kube-apiserver's connections", strings.Join(tokenFlags, ", --"))
		case token && certificate:
			found("both tokens and --cluster-ca-cert; the server refuses to start")
		}
		for _, name := range tokenFlags {
			if token && p.options.text(name) == "" {
				found("--%s is missing; the server wants all of --%s", name, strings.Join(tokenFlags, ", --"))
			}
		}
		if (token || p.options.isSet("enable-lease-controller")) && p.options.text("kubeconfig") == "" {
			found("no --kubeconfig, with which the server asks kube-apiserver")
		}
		if p.options.text("cluster-cert") == "" || p.options.text("cluster-key") == "" {
			found("no --cluster-cert and --cluster-key, the certificate towards agents; the server does not start")
		}
		tokens, certificates = tokens || token, certificates || certificate
	}
	for _, p := range s.agents {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		if tokens && p.options.text("service-account-token-path") == "" {
			found("no --service-account-token-path, and the server wants a token")
		}
		if certificates && (p.options.text("agent-cert") == "" || p.options.text("agent-key") == "") {
			found("no --agent-cert and --agent-key, and the server wants a certificate")
		}
		if p.options.text("ca-cert") == "" {
			found("no --ca-cert; the agent does not start without the CA of the server's certificate")
		}
	}
	return out
}

// rootCAConfigMap holds the cluster's CA in every namespace.
const rootCAConfigMap = "kube-root-ca.crt"

// clusterCA tells why a CA's file is the cluster's, or returns "". Paths are compared too, since the cluster's CA is seldom among the files.
func (s *set) clusterCA(p *program, file string) string {
	for _, k := range s.apiServers {
		if file == k.options.text("client-ca-file") {
			return "the --client-ca-file of kube-apiserver"
		}
	}
	switch {
	case file == "/etc/kubernetes/pki/ca.crt":
		return "kubeadm's file of the cluster's CA"
	case strings.HasPrefix(file, "/var/run/secrets/kubernetes.io/serviceaccount/"):
		return "the ServiceAccount's file of the cluster's CA"
	}
	if v, _ := p.volumeAt(file); v != nil && v.ConfigMap != nil && v.ConfigMap.Name == rootCAConfigMap {
		return "from the ConfigMap " + rootCAConfigMap
	}
	for _, ca := range s.bundle(file) {
		if s.knownClientCAs().Contains(ca) {
			return fmt.Sprintf("%s, which vouches for users of the cluster", ca.Subject)
		}
	}
	return ""
}

// knownClientCAs are those that the caller named, and those of kube-apiserver's flag and of kubeconfigs that are here.
func (s *set) knownClientCAs() certs.Bundle {
	out := slices.Clone(s.clientCAs)
	for _, k := range s.apiServers {
		out = append(out, s.bundle(k.options.text("client-ca-file"))...)
	}
	for _, p := range s.servers {
		k := s.readKubeconfig(p)
		if b, err := certs.ParseBundle(k.cluster.CertificateAuthorityData); err == nil {
			out = append(out, b...)
		}
		out = append(out, s.bundle(k.cluster.CertificateAuthority)...)
	}
	return out
}

// checkClusterCA: the server takes any client certificate of its CAs, whatever its name.
func checkClusterCA(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		frontend, agents := p.options.text("server-ca-cert"), p.options.text("cluster-ca-cert")
		for name, file := range map[string]string{"server-ca-cert": frontend, "cluster-ca-cert": agents} {
			if why := s.clusterCA(p, file); file != "" && why != "" {
				out = append(out, finding(p.String(), "--%s=%s is %s: every user with a certificate would be let in", name, file, why))
			}
		}
		if frontend == "" || agents == "" {
			continue
		}
		if frontend == agents || slices.ContainsFunc(s.bundle(agents), s.bundle(frontend).Contains) {
			out = append(out, finding(p.String(),
				"--server-ca-cert and --cluster-ca-cert have the same CA: an agent's certificate would pass for kube-apiserver's"))
		}
	}
	return out
}

// checkToken: the token that agents show is the one that the server asks about.
func checkToken(s *set) []verify.Finding {
	var out []verify.Finding
	for _, a := range s.agents {
		file := a.options.text("service-account-token-path")
		for _, p := range s.servers {
			if file == "" || !usesTokens(p) {
				continue
			}
			found := func(format string, args ...any) {
				out = append(out, finding(a.String(), format, args...))
			}
			if ns := p.options.text("agent-namespace"); a.meta.Namespace != ns {
				found("agents are in the namespace %q, the server has --agent-namespace=%s", a.meta.Namespace, ns)
			}
			if name := p.options.text("agent-service-account"); a.pod.Spec.ServiceAccountName != name {
				found("agents have the ServiceAccount %q, the server has --agent-service-account=%s", a.pod.Spec.ServiceAccountName, name)
			}
			token := a.tokenAt(file)
			switch audience := p.options.text("authentication-audience"); {
			case token == nil:
				found("no projected volume has a ServiceAccount's token at %s", file)
			case token.Audience != audience:
				found("the token at %s has the audience %q, the server has --authentication-audience=%s", file, token.Audience, audience)
			}
		}
	}
	return out
}

// tokenAt returns the token that is projected at a path.
func (p *program) tokenAt(file string) *corev1.ServiceAccountTokenProjection {
	v, mount := p.volumeAt(file)
	if v == nil || v.Projected == nil {
		return nil
	}
	for _, source := range v.Projected.Sources {
		if t := source.ServiceAccountToken; t != nil && path.Join(mount.MountPath, t.Path) == path.Clean(file) {
			return t
		}
	}
	return nil
}
