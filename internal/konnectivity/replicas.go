// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/extension-apiserver/internal/certs/verify"
)

// checkServerCount: agents dial until they know as many servers as they were told. With too few some kube-apiserver has no agent; with too
// many they dial for ever.
func checkServerCount(s *set) []verify.Finding {
	var out []verify.Finding
	static := int32(0) // pods of which each is on a node of its own
	for _, p := range s.servers {
		if p.kind == "Pod" {
			static++
		}
	}
	for _, p := range s.servers {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		leases := p.options.isSet("enable-lease-controller")
		switch count := p.options.number("server-count"); {
		case leases:
		case p.replicas > 0 && count != int(p.replicas):
			found("--server-count=%d, and there are %d replicas", count, p.replicas)
		case p.kind == "Pod" && count < int(static):
			found("--server-count=%d, and there are %d static pods", count, static)
		}
		for _, a := range s.agents {
			counts := a.options.isSet("count-server-leases")
			switch {
			case leases && !counts:
				found("--enable-lease-controller, and agents have no --count-server-leases (%s)", a)
			case counts && !leases:
				found("agents have --count-server-leases (%s), and the server has no --enable-lease-controller", a)
			case !leases:
				continue
			}
			for _, name := range []string{"lease-namespace", "lease-label"} {
				if p.options.text(name) != a.options.text(name) {
					found("--%s=%s, agents have %s", name, p.options.text(name), a.options.text(name))
				}
			}
		}
	}
	return out
}

// checkIDs: a server with another's ID is taken for it and gets no agents; connections of agents with one ID are mixed up.
func checkIDs(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		several := p.replicas > 1 || p.replicas == 0 && (p.options.number("server-count") > 1 || p.options.isSet("enable-lease-controller"))
		if id := s.id(p, "server-id", "PROXY_SERVER_ID"); several && id != "" && !strings.Contains(id, "$(") {
			out = append(out, finding(p.String(), "all servers have the ID %q", id))
		}
	}
	for _, p := range s.agents {
		id := s.id(p, "agent-id", "PROXY_AGENT_ID")
		switch {
		case id == "" || p.replicas == 1:
		case !strings.Contains(id, "$("):
			out = append(out, finding(p.String(), "all agents have the ID %q", id))
		case s.perNode(p, id) && s.overlaps(p):
			out = append(out, finding(p.String(), "two agents on one node have the same ID, %s", id))
		}
	}
	return out
}

// id returns what a flag or its environment variable says; $(NAME) stands for what only the cluster knows.
func (s *set) id(p *program, flag, env string) string {
	if id := p.options.text(flag); id != "" {
		return id
	}
	for _, e := range p.container.Env {
		if e.Name == env && e.ValueFrom == nil {
			value, _ := s.expand(p, e.Value)
			return value
		}
	}
	return ""
}

// perNode tells whether a value with $(NAME) is the same for all pods of a node.
func (s *set) perNode(p *program, value string) bool {
	for _, match := range variable.FindAllStringSubmatch(value, -1) {
		for _, e := range p.container.Env {
			if e.Name != match[1] || e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
				continue
			}
			if !slices.Contains([]string{"status.hostIP", "spec.nodeName"}, e.ValueFrom.FieldRef.FieldPath) {
				return false
			}
		}
	}
	return true
}

// overlaps tells whether two pods of the workload can be on one node, if only while one replaces the other.
func (s *set) overlaps(p *program) bool {
	for _, d := range all[*appsv1.DaemonSet](s) {
		if d.Name == p.meta.Name && d.Namespace == p.meta.Namespace {
			rolling := d.Spec.UpdateStrategy.RollingUpdate
			return rolling != nil && rolling.MaxSurge != nil && !slices.Contains([]string{"0", "0%"}, rolling.MaxSurge.String())
		}
	}
	return true
}

// strategies says what of agents' identifiers each needs.
var strategies = map[string][]string{"default": nil, "destHost": {"ipv4", "ipv6", "host"}, "defaultRoute": {"default-route"}}

// checkStrategies: the first strategy decides about the server's /readyz, so agents must fit it.
func checkStrategies(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		names := strings.Split(p.options.text("proxy-strategies"), ",")
		for _, name := range names {
			if _, ok := strategies[name]; !ok {
				out = append(out, finding(p.String(), "--proxy-strategies has %q, expected default, destHost or defaultRoute", name))
			}
		}
		need := strategies[names[0]]
		fits := func(a *program) bool {
			return slices.ContainsFunc(need, func(kind string) bool { return identifiers(a).Has(kind) })
		}
		if len(need) > 0 && len(s.agents) > 0 && !slices.ContainsFunc(s.agents, fits) {
			out = append(out, finding(p.String(), "the first of --proxy-strategies is %s, and no agent has one of %q in --agent-identifiers", names[0], need))
		}
	}
	known := []string{"ipv4", "ipv6", "host", "cidr", "default-route"}
	for _, a := range s.agents {
		for kind := range identifiers(a) {
			if !slices.Contains(known, kind) {
				out = append(out, finding(a.String(), "--agent-identifiers has %q, expected %q", kind, known))
			}
		}
		if identifiers(a).Has("cidr") {
			out = append(out, verify.Finding{Object: a.String(), Severity: verify.Warning, Evidence: "--agent-identifiers has cidr, which no strategy reads"})
		}
	}
	return out
}

// identifiers: the agent refuses what cannot be parsed as a query, and then it has none.
func identifiers(a *program) url.Values {
	values, err := url.ParseQuery(a.options.text("agent-identifiers"))
	if err != nil {
		return url.Values{}
	}
	return values
}
