// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"example.com/extension-apiserver/internal/certs/verify"
)

// checkProbes: the server's /readyz wants an agent.
func checkProbes(s *set) []verify.Finding {
	var out []verify.Finding
	wantsAgent := func(p *corev1.Probe) bool {
		return p != nil && p.HTTPGet != nil && slices.Contains([]string{"/readyz", "/ready"}, p.HTTPGet.Path)
	}
	for _, p := range s.servers {
		found := func(what string) { out = append(out, verify.Finding{Object: p.String(), Evidence: what}) }
		if p.sidecar && wantsAgent(p.container.ReadinessProbe) {
			found("the readiness probe asks /readyz in the pod of kube-apiserver, which then waits for an agent that waits for kube-apiserver")
		}
		if wantsAgent(p.container.LivenessProbe) || wantsAgent(p.container.StartupProbe) {
			found("the liveness or startup probe asks /readyz: without an agent the server is restarted for ever")
		}
	}
	return out
}

// checkProxyEnvironment: transports of kube-apiserver use the environment's proxy through the tunnel.
func checkProxyEnvironment(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.apiServers {
		proxy, except := env(p, "HTTPS_PROXY"), strings.Split(env(p, "NO_PROXY"), ",")
		if proxy == "" {
			continue
		}
		for cidr := range strings.SplitSeq(p.options.text("service-cluster-ip-range"), ",") {
			want, err := netip.ParsePrefix(cidr)
			if err == nil && !slices.ContainsFunc(except, func(have string) bool { return covers(have, want) }) {
				out = append(out, finding(p.String(), "HTTPS_PROXY is %s, and NO_PROXY (%s) does not have %s", proxy, strings.Join(except, ","), want))
			}
		}
		if env(p, "NO_PROXY") == "" {
			out = append(out, verify.Finding{Object: p.String(), Evidence: "HTTPS_PROXY is " + proxy + ", and there is no NO_PROXY"})
		}
	}
	return out
}

func covers(have string, want netip.Prefix) bool {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(have))
	return err == nil && prefix.Bits() <= want.Bits() && prefix.Contains(want.Addr())
}

// env returns a variable by its name in capitals or in small letters, as net/http reads it.
func env(p *program, name string) string {
	for _, e := range p.container.Env {
		if strings.EqualFold(e.Name, name) {
			return e.Value
		}
	}
	return ""
}

var versionTag = regexp.MustCompile(`^v[0-9]+\.([0-9]+)\.[0-9]+`)

// minor returns the minor version in an image's tag, or "".
func minor(image string) string {
	_, tag, _ := splitImage(image)
	if m := versionTag.FindStringSubmatch(tag); m != nil {
		return m[1]
	}
	return ""
}

// checkVersions: konnectivity's minor version is that of Kubernetes.
func checkVersions(s *set) []verify.Finding {
	var out []verify.Finding
	known := versionTag.FindStringSubmatch(version)[1]
	for _, p := range slices.Concat(s.servers, s.agents) {
		own := minor(p.container.Image)
		switch _, _, digest := splitImage(p.container.Image); {
		case own == "" && digest == "":
			out = append(out, finding(p.String(), "the image %q has no version", p.container.Image))
			continue
		case own == "":
			continue // a digest alone: nobody can see the version
		case own != known:
			out = append(out, verify.Finding{Object: p.String(), Severity: verify.Warning,
				Evidence: fmt.Sprintf("the image is %s; flags were checked as those of %s", p.container.Image, version)})
		}
		for _, k := range s.apiServers {
			if theirs := minor(k.container.Image); theirs != "" && theirs != own {
				out = append(out, finding(p.String(), "the image is %s beside %s", p.container.Image, k.container.Image))
			}
		}
	}
	return out
}
