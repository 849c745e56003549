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

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// handshake is one side of a TLS connection in the set: the certificate that it presents, and
// the CAs with which the other side verifies it.
type handshake struct {
	what       string // for findings
	object     string
	cert, cas  string // paths, as in flags and configurations
	usage      x509.ExtKeyUsage
	serverName string // that the client dials; empty for the certificates of clients
}

// handshakes returns both sides of kube-apiserver's connections over TCP and of the agents'
// connections.
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
	// A side without these settings is not used, or another rule reports it.
	return slices.DeleteFunc(out, func(h handshake) bool { return h.cert == "" || h.cas == "" })
}

// parseURL parses a URL. It returns an empty URL if address is invalid.
func parseURL(address string) *url.URL {
	if u, err := url.Parse(address); err == nil {
		return u
	}
	return &url.URL{}
}

// checkNames checks that a certificate contains the name or address that its client dials.
func checkNames(s *set) []catalogue.Finding {
	var out []catalogue.Finding
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

// kubeconfigCluster returns the kube-apiserver that a server uses, with paths as in its
// container. It returns an empty value if the kubeconfig is not among the files. That is not a
// fault, because the kubeconfig's directory contains a key.
func (s *set) kubeconfigCluster(p *program) clientcmdapi.Cluster {
	name := p.flags["kubeconfig"]
	config, err := clientcmd.LoadFromFile(s.file(name))
	if err != nil || clientcmdapi.MinifyConfig(config) != nil {
		return clientcmdapi.Cluster{}
	}
	for _, cluster := range config.Clusters { // only that of the current context
		if file := cluster.CertificateAuthority; file != "" && !path.IsAbs(file) {
			cluster.CertificateAuthority = path.Join(path.Dir(name), file)
		}
		return *cluster
	}
	return clientcmdapi.Cluster{}
}

// checkCAs checks that only CAs that sign nothing else identify agents and kube-apiserver.
// konnectivity accepts any client certificate of its CAs, regardless of its name. checkCAs also
// checks that each side accepts the other's certificate.
func checkCAs(s *set) []catalogue.Finding {
	var out []catalogue.Finding
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

// clusterCA returns the reason why a CA file contains a CA of the cluster's users, or "". It
// also compares paths, because that CA is rarely among the files.
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

// checkPeers checks that each side accepts the other's certificate.
func (s *set) checkPeers() []catalogue.Finding {
	var out []catalogue.Finding
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

// checkPairs runs the checks of certgen verify on each key pair in the set.
func (s *set) checkPairs() (checked []verify.Checked, findings []catalogue.Finding) {
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
			continue // it existed a moment ago
		}
		// checkPeers knows the peers and checks who trusts a key pair. verify reports that only
		// as info.
		checked = append(checked, report.Checked...)
		findings = append(findings, slices.DeleteFunc(report.Findings,
			func(f catalogue.Finding) bool { return f.Severity == catalogue.Info })...)
	}
	return checked, findings
}
