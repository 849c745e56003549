// SPDX-License-Identifier: Apache-2.0

package certs

import "time"

// The optional certificate sets of Init. Init always creates the serving set as well.
const (
	SetFrontProxy   = "front-proxy"
	SetKonnectivity = "konnectivity"

	setServing = "serving"
)

// The directories that Init maintains. Each contains tls.crt and tls.key, and those of leaves
// also ca.crt.
const (
	ServingCADir                   = "serving-ca"
	ServingDir                     = "serving"
	FrontProxyCADir                = "front-proxy-ca"
	FrontProxyClientDir            = "front-proxy-client"
	KonnectivityServerCADir        = "konnectivity-server-ca"
	KonnectivityServerDir          = "konnectivity-server"
	KonnectivityAPIServerClientDir = "konnectivity-apiserver-client"
	KonnectivityAgentCADir         = "konnectivity-agent-ca"
	KonnectivityAgentServerDir     = "konnectivity-agent-server"
	KonnectivityAgentDir           = "konnectivity-agent"
)

// konnectivityLifetime is longer than LeafLifetime because konnectivity does not reload
// certificates: each renewal is a restart.
const konnectivityLifetime = 365 * 24 * time.Hour

const restartServers = "konnectivity reads the certificate only at startup: restart konnectivity's servers"

// caDef defines one CA of a set, and leafDef one of its leaves. The table below is the only
// definition of all key pairs. Init and its report follow it, and certgen's help describes the
// same.
type (
	caDef struct {
		set      string
		dir      string
		mutual   bool // it has both usages
		leaves   []leafDef
		lifetime time.Duration // of leaves, unless the options set another
		next     []string      // commands for the report, with DIR for the directory
	}
	leafDef struct {
		dir        string
		want       func(o *InitOptions) (spec, error) // names and usage; Init adds lifetime and key type
		afterwards string                             // what to do after a replacement, for the report
	}
)

// The commands that use the certificates that Init created.
var (
	nextServing = []string{"extension-apiserver serve --tls-cert-file=DIR/serving/tls.crt " +
		"--tls-private-key-file=DIR/serving/tls.key"}
	nextFrontProxy = []string{"kube-apiserver --proxy-client-cert-file=DIR/front-proxy-client/tls.crt " +
		"--proxy-client-key-file=DIR/front-proxy-client/tls.key " +
		"--requestheader-client-ca-file=DIR/front-proxy-client/ca.crt --requestheader-allowed-names=" + FrontProxyUser}
	nextKonnectivity = []string{
		"proxy-server --server-cert=DIR/konnectivity-server/tls.crt --server-key=DIR/konnectivity-server/tls.key " +
			"--server-ca-cert=DIR/konnectivity-server/ca.crt " +
			"--cluster-cert=DIR/konnectivity-agent-server/tls.crt --cluster-key=DIR/konnectivity-agent-server/tls.key",
		"proxy-agent --ca-cert=DIR/konnectivity-agent/ca.crt",
		"# agents without a token: proxy-server --cluster-ca-cert=DIR/konnectivity-agent-server/ca.crt, " +
			"proxy-agent --agent-cert=DIR/konnectivity-agent/tls.crt --agent-key=DIR/konnectivity-agent/tls.key",
		"# kube-apiserver's EgressSelectorConfiguration: clientCert=DIR/konnectivity-apiserver-client/tls.crt " +
			"clientKey=DIR/konnectivity-apiserver-client/tls.key caBundle=DIR/konnectivity-apiserver-client/ca.crt",
	}
)

var cas = []caDef{
	{
		set: setServing, dir: ServingCADir, lifetime: LeafLifetime, next: nextServing,
		leaves: []leafDef{{dir: ServingDir, want: servingNames}},
	},
	{
		set: SetFrontProxy, dir: FrontProxyCADir, lifetime: LeafLifetime, next: nextFrontProxy,
		leaves: []leafDef{{dir: FrontProxyClientDir, want: client(FrontProxyUser)}},
	},
	// konnectivity needs two CAs, because its server accepts any client certificate of a CA, and
	// an agent must not be able to act as kube-apiserver. Each CA has both usages, because it
	// signs both ends of its connections.
	{
		set: SetKonnectivity, dir: KonnectivityServerCADir, mutual: true, lifetime: konnectivityLifetime,
		next: nextKonnectivity,
		leaves: []leafDef{
			{KonnectivityServerDir, konnectivityServer, restartServers},
			{KonnectivityAPIServerClientDir, client(KonnectivityAPIServerClientDir),
				"kube-apiserver reads the certificate only at startup: restart kube-apiserver"},
		},
	},
	{
		set: SetKonnectivity, dir: KonnectivityAgentCADir, mutual: true, lifetime: konnectivityLifetime,
		leaves: []leafDef{
			{KonnectivityAgentServerDir, konnectivityAgentServer, restartServers},
			{KonnectivityAgentDir, client(KonnectivityAgentDir),
				"konnectivity reads the certificate only at startup: restart the agents"},
		},
	},
}

// SetNames returns the valid values of With.
func SetNames() []string { return []string{SetFrontProxy, SetKonnectivity} }

// Leaves returns the directories of all leaves.
func Leaves() []string {
	var names []string
	for _, ca := range cas {
		for _, l := range ca.leaves {
			names = append(names, l.dir)
		}
	}
	return names
}

func client(user string) func(*InitOptions) (spec, error) {
	return func(*InitOptions) (spec, error) { return ClientOptions{User: user}.spec() }
}

// konnectivityServer returns the spec for the endpoint that kube-apiserver dials, by default on
// the same machine.
func konnectivityServer(o *InitOptions) (spec, error) {
	names := o.KonnectivityServerNames
	if names == nil {
		names = []string{"localhost", "127.0.0.1", "::1"}
	}
	return hostsSpec("konnectivity-server-name", names)
}

// konnectivityAgentServer returns the spec for the endpoint that agents dial from other
// machines. Its names have no default, because only the operator knows that address.
func konnectivityAgentServer(o *InitOptions) (spec, error) {
	const field = "konnectivity-agent-server-name"
	if len(o.KonnectivityAgentServerNames) == 0 {
		return spec{}, &InvalidError{field, "",
			"expected the DNS name or IP address to which agents connect (their --proxy-server-host)"}
	}
	return hostsSpec(field, o.KonnectivityAgentServerNames)
}

// hostsSpec returns the spec for hosts that are IP addresses or DNS names. No string is both.
func hostsSpec(field string, hosts []string) (spec, error) {
	var o ServingOptions
	for _, s := range hosts {
		if isAddress(s) {
			o.IPs = append(o.IPs, s)
		} else {
			o.DNSNames = append(o.DNSNames, s)
		}
	}
	return o.specFor(field, field)
}
