// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"slices"

	"example.com/extension-apiserver/internal/certs/verify"
)

func rule(id string, find func(*set) []verify.Finding, meaning, fix string, severities ...verify.Severity) verify.Check[*set] {
	if len(severities) == 0 {
		severities = []verify.Severity{verify.Error}
	}
	return verify.Check[*set]{Rule: verify.Rule{ID: id, Severities: severities, Meaning: meaning, Fix: fix}, Find: find}
}

// finding is one with the severity and the fix of its rule.
func finding(object, format string, args ...any) verify.Finding {
	return verify.Finding{Object: object, Evidence: fmt.Sprintf(format, args...)}
}

// rules is all that can be wrong with a set, besides what internal/certs/verify finds in its pairs.
var rules = []verify.Check[*set]{
	rule("K01", checkParts,
		"a part is missing or cannot be read: the configuration, the server or the agents; as info, kube-apiserver or an APIService",
		"put its manifest into the directory", verify.Error, verify.Info),
	rule("K02", checkEgressRead,
		"kube-apiserver refuses the EgressSelectorConfiguration, or it has the deprecated name master",
		"correct it; konnectivity/egress has configurations that it takes"),
	rule("K03", checkPlainHTTP,
		"an http:// URL, which kube-apiserver takes for valid and then panics",
		"use https:// with tlsConfig, or a Unix socket"),
	rule("K04", checkSelection,
		"no selection cluster, the only one that aggregated APIs use, so kube-apiserver dials them by itself",
		"add the selection cluster with GRPC or HTTPConnect"),
	rule("K05", checkProxyCA,
		"kube-apiserver would accept any server that a public CA vouches for",
		"set caBundle to konnectivity-apiserver-client/ca.crt"),
	rule("K06", checkMode,
		"kube-apiserver and the server speak different protocols, or one listens where the other does not dial",
		"make --mode, --uds-name and --server-port what the configuration says"),
	rule("K07", checkSocketPath,
		"the socket has two paths, or one that the kernel refuses",
		"use the same absolute path on both sides, of at most 107 bytes"),
	rule("K08", checkSocketMount,
		"kube-apiserver and the server do not share the directory of the socket",
		"mount the same directory, not the socket itself, into both; writable for the server"),
	rule("K09", checkSocketGroup,
		"kube-apiserver may not open the socket",
		"give kube-apiserver the server's group: supplementalGroups, or fsGroup in a shared pod"),
	rule("K10", checkAgentAuthentication,
		"agents are not authenticated, or otherwise than they identify themselves",
		"use tokens or certificates, one of them, on both sides: konnectivity/README.md"),
	rule("K11", checkClusterCA,
		"a CA that vouches for others too decides who is an agent or kube-apiserver",
		"use the CAs of certgen init --with konnectivity, which sign nothing else"),
	rule("K12", checkToken,
		"the server refuses the agents' tokens",
		"make namespace, ServiceAccount and audience the same on both sides"),
	rule("K13", checkRBAC,
		"the server or the agents lack a right, or have one more (a warning)",
		"use konnectivity/server/rbac and the components leases", verify.Error, verify.Warning),
	rule("K14", checkNames,
		"the name or address that is dialled is not in the certificate",
		"make it anew with the name: certgen init --konnectivity-agent-server-name, --konnectivity-server-name"),
	rule("K15", checkPeers,
		"a certificate is missing, or the other side refuses it",
		"put the pairs of certgen init --with konnectivity under the paths in the manifests"),
	rule("K16", checkRestart,
		"new certificates would not be used: neither program reads them twice, and the pods' annotation does not follow them",
		"set the annotation "+HashAnnotation+" of the pods to the value found", verify.Warning),
	rule("K17", checkFlags,
		"the program has no such flag, or not with this value",
		"correct it; konnectivity "+version+" lists its flags with --help", verify.Error, verify.Warning),
	rule("K18", checkTimes,
		"a time or a size with which dead peers go unnoticed, agents are disconnected, or one slow reader stops all",
		"take the values of konnectivity/server and konnectivity/agents"),
	rule("K19", checkShutdown,
		"the server does not end by itself before it is killed; with 0 it waits for open tunnels without end",
		"set --graceful-shutdown-timeout below terminationGracePeriodSeconds"),
	rule("K20", checkServerCount,
		"agents do not know how many servers there are",
		"set --server-count to their number, or use the components leases on both sides"),
	rule("K21", checkIDs,
		"two servers or agents have one ID",
		"leave the ID out, it is random then; or use the pod's UID"),
	rule("K22", checkStrategies,
		"no agent fits the first strategy, so the server is never ready; as a warning, an identifier that nothing reads",
		"use --proxy-strategies=default, or give agents --agent-identifiers", verify.Error, verify.Warning),
	rule("K23", checkVariables,
		"a variable in an argument is not replaced",
		"write $(NAME) and set NAME in env"),
	rule("K24", checkBackend,
		"kube-aggregator finds no address behind an APIService",
		"give it a Service with a cluster IP, and the port by number in the APIService and by name in the pods"),
	rule("K25", checkNetworkPolicies,
		"a NetworkPolicy keeps the agents from the API server",
		"allow ingress from the agents' pods: manifests/components/network-policy"),
	rule("K26", checkFrontDoor,
		"agents do not reach the servers, or only when they need them no more",
		"set publishNotReadyAddresses, and the Service's port in --proxy-server-port", verify.Error, verify.Warning),
	rule("K27", checkProbes,
		"a probe waits for an agent, which waits for the pod",
		"ask /healthz"),
	rule("K28", checkWebhooks,
		"a webhook that is called through agents must admit the first agent",
		"exempt the agents' namespace with a namespaceSelector"),
	rule("K29", checkProxyEnvironment,
		"kube-apiserver would look for its proxy at the far end of the tunnel",
		"put the networks of Services and pods into NO_PROXY"),
	rule("K30", checkVersions,
		"konnectivity and Kubernetes of different minor versions, or nobody knows which",
		"use the version of konnectivity with the minor version of Kubernetes", verify.Error, verify.Warning),
	rule("K31", checkNonrootVolumes,
		"the server or the agents cannot use their files, or are root to do so",
		"make the directory with its owner 65532 beforehand, and use the type Directory or File"),
}

// Rules returns the rules in the order of their IDs.
func Rules() []verify.Rule {
	var out []verify.Rule
	for _, c := range rules {
		r := c.Rule
		r.Severities = slices.Clone(r.Severities)
		out = append(out, r)
	}
	return out
}

// checkParts: what must be there, and what other rules need.
func checkParts(s *set) []verify.Finding {
	var out []verify.Finding
	for _, u := range s.unread {
		out = append(out, verify.Finding{Object: u.where, Evidence: u.reason.Error()})
	}
	if _, err := s.egress(); err != nil {
		out = append(out, verify.Finding{Object: s.dir, Evidence: err.Error()})
	}
	missing := func(severity verify.Severity, is bool, what, consequence string) {
		if is {
			out = append(out, verify.Finding{Object: s.dir, Severity: severity, Evidence: "expected " + what + ", found none" + consequence})
		}
	}
	missing(verify.Error, len(s.servers) == 0, "a container "+serverName, "")
	missing(verify.Error, len(s.agents) == 0, "a container "+agentName, "")
	missing(verify.Info, len(s.apiServers) == 0, "a container "+apiServerName, "; its flags, groups and mounts were not checked")
	_, ok := s.backend()
	missing(verify.Info, !ok, "an APIService with a Service", "; the way from the agents to it was not checked")
	return out
}
