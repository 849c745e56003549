// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs/verify"
)

// egress returns the configuration that kube-apiserver reads: the one that its flag names, or the only one.
func (s *set) egress() (egressFile, error) {
	var names []string
	for _, e := range s.egresses {
		names = append(names, e.where)
	}
	if len(s.apiServers) > 0 {
		p := s.apiServers[0] // those of one control plane have the same flags
		name := filepath.Base(p.options.text(egressFlag))
		if p.options.text(egressFlag) == "" {
			return egressFile{}, fmt.Errorf("expected --%s on kube-apiserver (%s), found no such flag; without it kube-apiserver dials by itself",
				egressFlag, p)
		}
		if i := slices.IndexFunc(s.egresses, func(e egressFile) bool { return e.name == name }); i >= 0 {
			return s.egresses[i], nil
		}
		return egressFile{}, fmt.Errorf("expected a file %s, which kube-apiserver's --%s names, found %q", name, egressFlag, names)
	}
	if len(s.egresses) != 1 {
		return egressFile{}, fmt.Errorf("expected one EgressSelectorConfiguration, found %q; leave one, or add the manifest of kube-apiserver, whose flag names it", names)
	}
	return s.egresses[0], nil
}

// readEgress has kube-apiserver's own code read the configuration, which takes a file only.
func readEgress(e egressFile) (*apiserver.EgressSelectorConfiguration, error) {
	f, err := os.CreateTemp("", "egress-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a file without secrets in the directory for such
	_, err = f.Write(e.data)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return egressselector.ReadEgressSelectorConfiguration(f.Name())
}

// selection returns the connection of the selection "cluster", which is the one that aggregated APIs use; nil when there is none
// that can be read.
func (s *set) selection() (*apiserver.Connection, string) {
	e, err := s.egress()
	if err != nil {
		return nil, ""
	}
	config, err := readEgress(e)
	if err != nil {
		return nil, e.where
	}
	for i, sel := range config.EgressSelections {
		if strings.EqualFold(sel.Name, "cluster") {
			return &config.EgressSelections[i].Connection, e.where
		}
	}
	return nil, e.where
}

// socket returns the path of the socket in the selection.
func (s *set) socket() string {
	if c, _ := s.selection(); c != nil && c.Transport != nil && c.Transport.UDS != nil {
		return c.Transport.UDS.UDSName
	}
	return ""
}

// proxyTCP returns how kube-apiserver reaches the server by TCP, or nil.
func (s *set) proxyTCP() *apiserver.TCPTransport {
	if c, _ := s.selection(); c != nil && c.Transport != nil {
		return c.Transport.TCP
	}
	return nil
}

// checkEgressRead: only versions that have this kind, no unknown field, and what kube-apiserver validates.
func checkEgressRead(s *set) []verify.Finding {
	e, err := s.egress()
	if err != nil {
		return nil // checkParts says so
	}
	config, err := readEgress(e)
	if err != nil {
		f := verify.Finding{Object: e.where, Evidence: err.Error()}
		if strings.Contains(err.Error(), "no kind") {
			f.Fix = "write apiVersion: apiserver.k8s.io/v1beta1, the newest version that has this kind; there is no v1"
		}
		return []verify.Finding{f}
	}
	var out []verify.Finding
	for _, sel := range config.EgressSelections {
		if t := sel.Connection.Transport; t != nil && t.TCP != nil {
			s.localFiles(t.TCP.TLSConfig)
			if sel.Connection.ProxyProtocol == apiserver.ProtocolGRPC {
				out = append(out, verify.Finding{Object: e.where, Evidence: fmt.Sprintf("selection %s: GRPC over TCP", sel.Name),
					Fix: "give it transport.uds, because kube-apiserver speaks GRPC over a Unix socket only, or use HTTPConnect"})
			}
		}
	}
	if hasMaster(e) {
		out = append(out, verify.Finding{Object: e.where, Evidence: "a selection has the name master",
			Fix: "write controlplane, which is what kube-apiserver makes of the deprecated name"})
	}
	if len(out) > 0 {
		return out
	}
	for _, problem := range egressselector.ValidateEgressSelectorConfiguration(config) {
		out = append(out, verify.Finding{Object: e.where, Evidence: problem.Error()})
	}
	if len(out) > 0 || hasPlainHTTP(config) {
		return out
	}
	if _, err := egressselector.NewEgressSelector(config); err != nil {
		out = append(out, verify.Finding{Object: e.where, Evidence: err.Error()})
	}
	return out
}

// hasMaster looks at what is written: the reader has replaced the name.
func hasMaster(e egressFile) bool {
	var written struct {
		EgressSelections []struct {
			Name string `json:"name"`
		} `json:"egressSelections"`
	}
	if yaml.Unmarshal(e.data, &written) != nil {
		return false
	}
	for _, sel := range written.EgressSelections {
		if strings.EqualFold(sel.Name, "master") {
			return true
		}
	}
	return false
}

// localFiles replaces the paths by those of the files here, so that kube-apiserver's code can open them.
func (s *set) localFiles(t *apiserver.TLSConfig) {
	if t == nil {
		return
	}
	for _, path := range []*string{&t.CABundle, &t.ClientCert, &t.ClientKey} {
		if here := s.file(*path); *path != "" && here != "" {
			*path = here
		}
	}
}

func hasPlainHTTP(config *apiserver.EgressSelectorConfiguration) bool {
	return slices.ContainsFunc(config.EgressSelections, func(sel apiserver.EgressSelection) bool {
		t := sel.Connection.Transport
		return t != nil && t.TCP != nil && strings.HasPrefix(strings.ToLower(t.TCP.URL), "http:")
	})
}

func checkPlainHTTP(s *set) []verify.Finding {
	e, err := s.egress()
	if err != nil {
		return nil
	}
	config, err := readEgress(e)
	if err != nil || !hasPlainHTTP(config) {
		return nil
	}
	return []verify.Finding{{Object: e.where, Evidence: "a selection has an http:// URL"}}
}

func checkSelection(s *set) []verify.Finding {
	e, err := s.egress()
	if err != nil {
		return nil
	}
	if _, err := readEgress(e); err != nil {
		return nil
	}
	switch c, where := s.selection(); {
	case c == nil:
		return []verify.Finding{{Object: where, Evidence: "no selection has the name cluster"}}
	case c.ProxyProtocol == apiserver.ProtocolDirect:
		return []verify.Finding{{Object: where, Evidence: "selection cluster has the protocol Direct"}}
	}
	return nil
}

func checkProxyCA(s *set) []verify.Finding {
	tcp := s.proxyTCP()
	if tcp == nil || tcp.TLSConfig == nil || tcp.TLSConfig.CABundle != "" {
		return nil
	}
	_, where := s.selection()
	return []verify.Finding{{Object: where, Evidence: "tlsConfig has no caBundle, so any CA that the machine trusts can vouch for the server"}}
}

// checkMode: both ends speak the same protocol at the same place.
func checkMode(s *set) []verify.Finding {
	c, _ := s.selection()
	if c == nil {
		return nil
	}
	var out []verify.Finding
	want := map[apiserver.ProtocolType]string{apiserver.ProtocolGRPC: "grpc", apiserver.ProtocolHTTPConnect: "http-connect"}[c.ProxyProtocol]
	tcp := s.proxyTCP()
	for _, p := range s.servers {
		found := func(format string, args ...any) {
			out = append(out, finding(p.String(), format, args...))
		}
		if mode := p.options.text("mode"); want != "" && mode != want {
			found("--mode=%s, kube-apiserver speaks %s", mode, c.ProxyProtocol)
		}
		uds := p.options.text("uds-name") != ""
		switch {
		case uds && tcp != nil:
			found("--uds-name is set, kube-apiserver dials %s", tcp.URL)
		case !uds && tcp == nil && s.socket() != "":
			found("no --uds-name, kube-apiserver dials the socket %s", s.socket())
		case uds && p.options.number("server-port") != 0:
			found("--server-port=%d beside --uds-name; the server wants 0", p.options.number("server-port"))
		case tcp != nil:
			if u, err := url.Parse(tcp.URL); err != nil || len(s.serversBehind()) == 0 && u.Port() != p.options.text("server-port") {
				found("--server-port=%s, kube-apiserver dials %s", p.options.text("server-port"), tcp.URL)
			}
		}
	}
	return out
}
