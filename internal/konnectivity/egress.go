// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"

	"example.com/extension-apiserver/internal/catalogue"
)

const egressFlag = "egress-selector-config-file"

// egress returns the configuration that kube-apiserver reads: the file that its flag names or,
// without a kube-apiserver manifest, the only file.
func (s *set) egress() (egressFile, error) {
	var names []string
	for _, e := range s.egresses {
		names = append(names, e.where)
	}
	if len(s.apiServers) > 0 {
		p := s.apiServers[0] // all kube-apiservers of a control plane have the same flags
		name := filepath.Base(p.flags[egressFlag])
		if p.flags[egressFlag] == "" {
			return egressFile{}, fmt.Errorf(
				"expected --%s on kube-apiserver (%s), found none; without it kube-apiserver connects directly",
				egressFlag, p)
		}
		if i := slices.IndexFunc(s.egresses, func(e egressFile) bool { return e.name == name }); i >= 0 {
			return s.egresses[i], nil
		}
		return egressFile{}, fmt.Errorf("expected the file %s of kube-apiserver's flag --%s, found %q", name,
			egressFlag, names)
	}
	if len(s.egresses) != 1 {
		return egressFile{}, fmt.Errorf(
			"expected one EgressSelectorConfiguration, found %q; add the manifest of kube-apiserver, which names "+
				"the right one", names)
	}
	return s.egresses[0], nil
}

// readEgress reads the configuration with kube-apiserver's own code, which accepts only a file.
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

// selection returns the connection of the selection "cluster", which aggregated APIs use, or
// nil. It also returns the location of the configuration.
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

// transport returns the way in which kube-apiserver reaches the server: the path of a socket,
// TCP or neither. It also returns the location of the configuration.
func (s *set) transport() (socket string, tcp *apiserver.TCPTransport, where string) {
	c, where := s.selection()
	if c == nil || c.Transport == nil {
		return "", nil, where
	}
	if c.Transport.UDS != nil {
		socket = c.Transport.UDS.UDSName
	}
	return socket, c.Transport.TCP, where
}

// checkEgress checks the configuration with kube-apiserver's own code, which decodes strictly.
func checkEgress(s *set) []catalogue.Finding {
	e, err := s.egress()
	if err != nil {
		return nil // reported by checkParts
	}
	config, err := readEgress(e)
	if err != nil {
		f := finding(e.where, "%v", err)
		if strings.Contains(err.Error(), "no kind") {
			f.Fix = "set apiVersion: apiserver.k8s.io/v1beta1, the newest version of this kind; there is no v1"
		}
		return []catalogue.Finding{f}
	}
	for _, sel := range config.EgressSelections {
		if t := sel.Connection.Transport; t != nil && t.TCP != nil {
			s.localFiles(t.TCP.TLSConfig)
		}
	}
	var out []catalogue.Finding
	for _, problem := range egressselector.ValidateEgressSelectorConfiguration(config) {
		out = append(out, finding(e.where, "%v", problem))
	}
	switch c, _ := s.selection(); {
	case c == nil:
		out = append(out, finding(e.where, "no egress selection is named cluster, so kube-apiserver connects directly"))
	case c.ProxyProtocol == apiserver.ProtocolDirect:
		out = append(out, finding(e.where, "the egress selection cluster has the protocol Direct"))
	}
	return out
}

// localFiles replaces paths with those of the files in the set, so that kube-apiserver's code
// finds them.
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

// checkPlainHTTP reports an http:// URL. kube-apiserver accepts it and panics without a TLS
// configuration (kubernetes/kubernetes#92690).
func checkPlainHTTP(s *set) []catalogue.Finding {
	_, tcp, where := s.transport()
	if tcp == nil || !strings.HasPrefix(strings.ToLower(tcp.URL), "http:") {
		return nil
	}
	return []catalogue.Finding{finding(where, "the egress selection cluster has the URL %s", tcp.URL)}
}
