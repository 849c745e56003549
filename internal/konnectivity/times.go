// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"slices"
	"strings"
	"time"

	"example.com/extension-apiserver/internal/certs/verify"
)

const (
	// maxServerKeepalive: gRPC adds 20 s for the answer, and until then kube-apiserver's connections go into a dead agent.
	maxServerKeepalive = time.Minute
	// minAgentKeepalive is the server's enforcement policy: who pings more often is disconnected with GOAWAY, too_many_pings.
	minAgentKeepalive = 30 * time.Second
	// minChannel: the default of 10 packets fills up behind one slow reader (kubernetes-sigs/apiserver-network-proxy#586).
	minChannel = 150
	// agentDial is the agent's own limit, clientDial that of kube-apiserver; neither can be set.
	agentDial, clientDial = 5 * time.Second, 30 * time.Second
)

func checkTimes(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		if d := p.options.duration("keepalive-time"); d > maxServerKeepalive {
			found("--keepalive-time=%s, expected at most %s: until then a dead agent is given connections", d, maxServerKeepalive)
		}
		if n := p.options.number("xfr-channel-size"); n < minChannel {
			found("--xfr-channel-size=%d, expected at least %d: one slow reader holds up everybody", n, minChannel)
		}
		if d := p.options.duration("backend-dial-timeout"); d <= agentDial || d >= clientDial {
			found("--backend-dial-timeout=%s, expected more than the %s of an agent and less than the %s of kube-apiserver", d, agentDial, clientDial)
		}
	}
	for _, p := range s.agents {
		if d := p.options.duration("keepalive-time"); d < minAgentKeepalive {
			out = append(out, finding(p.String(), "--keepalive-time=%s, expected at least %s: the server disconnects agents that ping more often", d, minAgentKeepalive))
		} else if d == time.Hour {
			out = append(out, verify.Finding{Object: p.String(), Evidence: "--keepalive-time=1h, expected about 60s: an agent does not notice a server that is gone"})
		}
	}
	return out
}

// defaultGrace is Kubernetes' default for terminationGracePeriodSeconds.
const defaultGrace = 30

func checkShutdown(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		seconds := int64(defaultGrace)
		if p.pod.Spec.TerminationGracePeriodSeconds != nil {
			seconds = *p.pod.Spec.TerminationGracePeriodSeconds
		}
		grace, d := time.Duration(seconds)*time.Second, p.options.duration("graceful-shutdown-timeout")
		if d <= 0 || d >= grace {
			out = append(out, finding(p.String(), "--graceful-shutdown-timeout=%s, expected more than 0 and less than terminationGracePeriodSeconds, which is %s", d, grace))
		}
	}
	return out
}

// deprecated are the server's flags that its next versions will not have.
var deprecated = []string{"warn-on-channel-limit"}

func checkFlags(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range slices.Concat(s.servers, s.agents) {
		for _, problem := range p.options.problems {
			f := verify.Finding{Object: p.String(), Evidence: problem}
			if slices.ContainsFunc(deprecated, func(name string) bool { return strings.Contains(problem, name) }) {
				f.Severity, f.Fix = verify.Warning, "leave it out: it is deprecated and does nothing"
			}
			out = append(out, f)
		}
	}
	for _, p := range s.servers {
		for _, name := range []string{"agent-port", "admin-port", "health-port"} {
			// The server refuses the others as reserved or ephemeral.
			if n := p.options.number(name); n < 1024 || n > 49151 {
				out = append(out, finding(p.String(), "--%s=%d, expected 1024 to 49151", name, n))
			}
		}
	}
	return out
}

func checkVariables(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range slices.Concat(s.servers, s.agents) {
		for _, arg := range p.options.expansion {
			out = append(out, finding(p.String(), "%s has a variable as a shell writes it; there is no shell, and kubelet replaces $(NAME) only", arg))
		}
		for _, name := range p.options.unknown {
			out = append(out, finding(p.String(), "%s has no value: the container has no such environment variable, or its ConfigMap is missing", name))
		}
	}
	return out
}
