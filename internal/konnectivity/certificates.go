// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// handshake is one side of a TLS connection of the set: who shows a certificate, and by which CAs the other side knows it.
type handshake struct {
	what       string // for findings
	object     string
	cert, cas  string // paths, as flags and configurations have them
	usage      x509.ExtKeyUsage
	serverName string // that the client dials; empty for the certificates of clients
}

// handshakes lists both sides of kube-apiserver's connections over TCP and of the agents' connections.
func (s *set) handshakes() []handshake {
	var out []handshake
	_, where := s.selection()
	for _, p := range s.servers {
		if tcp := s.proxyTCP(); tcp != nil && tcp.TLSConfig != nil {
			name := tcp.TLSConfig.TLSServerName
			if u, err := url.Parse(tcp.URL); err == nil && name == "" {
				name = u.Hostname()
			}
			out = append(out,
				handshake{"the server's certificate towards kube-apiserver", p.String(),
					p.options.text("server-cert"), tcp.TLSConfig.CABundle, x509.ExtKeyUsageServerAuth, name},
				handshake{"kube-apiserver's client certificate", where,
					tcp.TLSConfig.ClientCert, p.options.text("server-ca-cert"), x509.ExtKeyUsageClientAuth, ""})
		}
		for _, a := range s.agents {
			out = append(out, handshake{"the server's certificate towards agents", p.String(),
				p.options.text("cluster-cert"), a.options.text("ca-cert"), x509.ExtKeyUsageServerAuth, a.options.text("proxy-server-host")})
			if p.options.text("cluster-ca-cert") != "" {
				out = append(out, handshake{"the agents' client certificate", a.String(),
					a.options.text("agent-cert"), p.options.text("cluster-ca-cert"), x509.ExtKeyUsageClientAuth, ""})
			}
		}
	}
	// A flag that is missing is another rule's.
	return slices.DeleteFunc(out, func(h handshake) bool { return h.cert == "" || h.cas == "" })
}

// checkNames: a certificate has the name or address that its client dials.
func checkNames(s *set) []verify.Finding {
	var out []verify.Finding
	for _, h := range s.handshakes() {
		b := s.bundle(h.cert)
		// A name that only the cluster knows, such as $(HOST_IP), is not known here.
		if len(b) == 0 || h.serverName == "" || strings.Contains(h.serverName, "$(") {
			continue
		}
		if err := b[0].VerifyHostname(h.serverName); err != nil {
			out = append(out, finding(s.file(h.cert), "%s, but %s is dialled: %v", h.what, h.serverName, err))
		}
	}
	return out
}

// checkPeers: each side accepts the certificate of the other.
func checkPeers(s *set) []verify.Finding {
	out := s.kubeconfigFindings()
	for _, h := range s.handshakes() {
		shown, err := s.readBundle(h.cert)
		cas, err2 := s.readBundle(h.cas)
		if err := errors.Join(err, err2); err != nil {
			for _, e := range certs.Flatten(err) {
				out = append(out, verify.Finding{Object: h.object, Evidence: h.what + ": " + e.Error()})
			}
			continue
		}
		_, err = shown[0].Verify(x509.VerifyOptions{
			Roots: cas.Pool(), Intermediates: shown[1:].Pool(), CurrentTime: s.now, KeyUsages: []x509.ExtKeyUsage{h.usage},
		})
		if err != nil {
			out = append(out, finding(s.file(h.cert), "%s is not accepted by the CAs in %s: %v", h.what, s.file(h.cas), err))
		}
	}
	return out
}

// certificateFlags name the files that a program reads once, when it starts.
var certificateFlags = map[string][]string{
	serverName: {"server-cert", "server-ca-cert", "cluster-cert", "cluster-ca-cert"},
	agentName:  {"agent-cert", "ca-cert"},
}

// HashAnnotation is the annotation of pods whose value follows the certificates, so that a new one is a rollout.
const HashAnnotation = "certgen.example.com/konnectivity-certificates"

// checkRestart: neither program reads a certificate twice.
func checkRestart(s *set) []verify.Finding {
	var out []verify.Finding
	for role, programs := range map[string][]*program{serverName: s.servers, agentName: s.agents} {
		for _, p := range programs {
			hash, err := s.certificatesHash(p, certificateFlags[role])
			if err != nil {
				continue // checkPeers says so
			}
			if found := p.pod.Annotations[HashAnnotation]; found != hash {
				out = append(out, finding(p.String(), "the pods' annotation %s is %q, the certificates have %s", HashAnnotation, found, hash))
			}
		}
	}
	return out
}

// certificatesHash is the beginning of the SHA-256 of the files, in the order of the flags.
func (s *set) certificatesHash(p *program, flags []string) (string, error) {
	var content bytes.Buffer
	for _, name := range flags {
		path := p.options.text(name)
		if path == "" {
			continue
		}
		data, err := os.ReadFile(s.file(path))
		if err != nil {
			return "", err
		}
		content.Write(data)
	}
	sum := sha256.Sum256(content.Bytes())
	return hex.EncodeToString(sum[:8]), nil
}

// pairFindings are those of certgen verify for every pair that the set uses, and for the extension API server's own where it is here.
func (s *set) pairFindings() []verify.Finding {
	dirs := map[string]certs.Service{}
	for _, h := range s.handshakes() {
		if file := s.file(h.cert); file != "" {
			dirs[filepath.Dir(file)] = certs.Service{}
		}
	}
	for _, file := range s.files {
		if service, ok := s.backend(); ok && filepath.Base(filepath.Dir(file)) == certs.ServingDir && filepath.Base(file) == certs.CertFile {
			dirs[filepath.Dir(file)] = service
		}
	}
	var out []verify.Finding
	for dir, service := range dirs {
		report, err := verify.Paths([]string{dir}, verify.Options{Now: s.now, Service: service})
		if err != nil {
			continue // it was there a moment ago
		}
		for _, f := range report.Findings {
			// Whom the peers trust is checkPeers' business, which knows the peers.
			if f.Severity != verify.Info {
				out = append(out, f)
			}
		}
	}
	return out
}
