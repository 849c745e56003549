// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// handshake is one side of a TLS connection of the set: who shows a certificate, and by which CAs the other side knows
// it.
type handshake struct {
	what       string // for findings
	object     string
	cert, cas  string // paths, as flags and configurations have them
	usage      x509.ExtKeyUsage
	serverName string // that the client dials; empty for the certificates of clients
}

// handshakes lists both sides of kube-apiserver's connections over TCP, of the agents' connections, and of the servers'
// connections to kube-apiserver the one that must have a name.
func (s *set) handshakes() []handshake {
	var out []handshake
	_, tcp, where := s.transport()
	for _, p := range s.servers {
		if tcp != nil && tcp.TLSConfig != nil {
			name := cmp.Or(tcp.TLSConfig.TLSServerName, parseURL(tcp.URL).Hostname())
			out = append(out,
				handshake{"the server's certificate for kube-apiserver", p.String(), p.flags["server-cert"],
					tcp.TLSConfig.CABundle, x509.ExtKeyUsageServerAuth, name},
				handshake{"kube-apiserver's client certificate", where, tcp.TLSConfig.ClientCert,
					p.flags["server-ca-cert"], x509.ExtKeyUsageClientAuth, ""})
		}
		for _, a := range s.agents {
			out = append(out,
				handshake{"the server's certificate for agents", p.String(), p.flags["cluster-cert"],
					a.flags["ca-cert"], x509.ExtKeyUsageServerAuth, a.flags["proxy-server-host"]},
				handshake{"the agents' client certificate", a.String(), a.flags["agent-cert"],
					p.flags["cluster-ca-cert"], x509.ExtKeyUsageClientAuth, ""})
		}
	}
	// What is not set is not used, or is another rule's.
	return slices.DeleteFunc(out, func(h handshake) bool { return h.cert == "" || h.cas == "" })
}

// parseURL returns an empty URL for what is none.
func parseURL(address string) *url.URL {
	if u, err := url.Parse(address); err == nil {
		return u
	}
	return &url.URL{}
}

// checkNames: a certificate contains the name or address that its client dials.
func checkNames(s *set) []verify.Finding {
	var out []verify.Finding
	check := func(what, file, dialled string) {
		b := s.bundle(file)
		// A name that only the cluster knows, such as $(HOST_IP), is not checked.
		if len(b) == 0 || dialled == "" || strings.Contains(dialled, "$(") {
			return
		}
		if err := b[0].VerifyHostname(dialled); err != nil {
			out = append(out, finding(s.file(file), "%s: clients connect to %s: %v", what, dialled, err))
		}
	}
	for _, h := range s.handshakes() {
		check(h.what, h.cert, h.serverName)
	}
	for _, p := range s.servers {
		cluster := s.kubeconfigCluster(p)
		dialled := cmp.Or(cluster.TLSServerName, parseURL(cluster.Server).Hostname())
		for _, k := range s.apiServers {
			check("kube-apiserver's certificate, for the server's kubeconfig", k.flags["tls-cert-file"], dialled)
		}
	}
	return out
}

// kubeconfigCluster is the kube-apiserver that a server asks, with paths as its container has them. It is empty where
// the kubeconfig is not among the files, which is no fault: its directory has a key.
func (s *set) kubeconfigCluster(p *program) clientcmdapi.Cluster {
	name := p.flags["kubeconfig"]
	config, err := clientcmd.LoadFromFile(s.file(name))
	if err != nil || clientcmdapi.MinifyConfig(config) != nil {
		return clientcmdapi.Cluster{}
	}
	for _, cluster := range config.Clusters { // that of the current context
		if file := cluster.CertificateAuthority; file != "" && !path.IsAbs(file) {
			cluster.CertificateAuthority = path.Join(path.Dir(name), file)
		}
		return *cluster
	}
	return clientcmdapi.Cluster{}
}

// checkCAs: only CAs that sign nothing else decide who is an agent or kube-apiserver, because konnectivity accepts any
// client certificate of its CAs, whatever its name; and each side accepts the certificate of the other.
func checkCAs(s *set) []verify.Finding {
	var out []verify.Finding
	for _, p := range s.servers {
		frontend, agents := p.flags["server-ca-cert"], p.flags["cluster-ca-cert"]
		for _, flag := range []string{"server-ca-cert", "cluster-ca-cert"} {
			if why := s.clusterCA(p, p.flags[flag]); why != "" {
				out = append(out, finding(p.String(), "--%s=%s is %s, so the server accepts every user with a certificate", flag,
					p.flags[flag], why))
			}
		}
		if frontend != "" && agents != "" && (frontend == agents ||
			slices.ContainsFunc(s.bundle(agents), s.bundle(frontend).Contains)) {
			out = append(out, finding(p.String(),
				"--server-ca-cert and --cluster-ca-cert share a CA, so the server accepts an agent's certificate as "+
					"kube-apiserver's"))
		}
	}
	if _, tcp, where := s.transport(); tcp != nil && tcp.TLSConfig != nil && tcp.TLSConfig.CABundle == "" {
		out = append(out, finding(where,
			"tlsConfig has no caBundle, so kube-apiserver accepts a server certificate of any CA that the host trusts"))
	}
	return append(out, s.checkPeers()...)
}

// clusterCA tells why a CA's file is that of the cluster's users, or returns "". Paths are compared too, because that
// CA is seldom among the files.
func (s *set) clusterCA(p *program, file string) string {
	users := slices.Clone(s.clientCAs)
	for _, k := range s.apiServers {
		flag := k.flags["client-ca-file"]
		if file != "" && file == flag {
			return "the --client-ca-file of kube-apiserver"
		}
		users = append(users, s.bundle(flag)...)
	}
	for _, server := range s.servers {
		cluster := s.kubeconfigCluster(server)
		users = append(append(users, s.bundle(cluster.CertificateAuthority)...),
			certs.LenientBundle(cluster.CertificateAuthorityData)...)
	}
	switch v, _ := p.volumeAt(file); {
	case file == "/etc/kubernetes/pki/ca.crt":
		return "kubeadm's cluster CA"
	case strings.HasPrefix(file, "/var/run/secrets/kubernetes.io/serviceaccount/"), v != nil && v.ConfigMap != nil &&
		v.ConfigMap.Name == "kube-root-ca.crt":
		return "the cluster CA that is mounted into pods"
	}
	for _, ca := range s.bundle(file) {
		if users.Contains(ca) {
			return fmt.Sprintf("%s, a CA of the cluster's users", ca.Subject)
		}
	}
	return ""
}

// checkPeers: each side accepts the certificate of the other.
func (s *set) checkPeers() []verify.Finding {
	var out []verify.Finding
	for _, h := range s.handshakes() {
		shown, err := s.readBundle(h.cert)
		cas, err2 := s.readBundle(h.cas)
		if err := errors.Join(err, err2); err != nil {
			for _, e := range certs.Flatten(err) {
				out = append(out, finding(h.object, "%s: %v", h.what, e))
			}
			continue
		}
		if _, err := shown[0].Verify(x509.VerifyOptions{
			Roots: cas.Pool(), Intermediates: shown[1:].Pool(), CurrentTime: s.now,
			KeyUsages: []x509.ExtKeyUsage{h.usage},
		}); err != nil {
			out = append(out, finding(s.file(h.cert), "%s does not verify with the CAs in %s: %v", h.what,
				s.file(h.cas), err))
		}
	}
	return out
}

// checkPairs does what certgen verify does, with each pair that the set uses.
func (s *set) checkPairs() (checked []verify.Checked, findings []verify.Finding) {
	var dirs []string
	add := func(name string) {
		if file := s.file(name); file != "" {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	for _, h := range s.handshakes() {
		add(h.cert)
	}
	for _, p := range s.servers {
		add(path.Join(p.flags["kubeconfig"]+".d", certs.CertFile))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		report, err := verify.Paths([]string{dir}, verify.Options{Now: s.now})
		if err != nil {
			continue // it was there a moment ago
		}
		// Who trusts a pair is checked by checkPeers, which knows the peers; verify reports it as info.
		checked = append(checked, report.Checked...)
		findings = append(findings, slices.DeleteFunc(report.Findings,
			func(f verify.Finding) bool { return f.Severity == verify.Info })...)
	}
	return checked, findings
}
