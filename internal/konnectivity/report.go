// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"os"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// Options are what a set is checked against.
type Options struct {
	// ClientCAFiles hold the CAs of the cluster's users, none of which may decide who is an agent. The CAs of
	// kube-apiserver's
	// --client-ca-file and of kubeconfigs are found without it where they are among the files.
	ClientCAFiles []string
	Now           time.Time
}

// Verify checks the set in a directory against all rules. The directory holds rendered manifests (*.yaml, *.yml,
// *.json) anywhere below it, and the pairs under the names that certgen init gives them
// (konnectivity-agent-server/tls.crt): a file that a manifest names is found by the last two parts of its path. Faults
// of the set are findings; Verify fails only if the directory cannot be read or holds no manifests, or if a file of CAs
// cannot be read.
func Verify(dir string, opts Options) (*verify.Report, error) {
	s, err := load(dir, opts.Now)
	if err != nil {
		return nil, err
	}
	for _, file := range opts.ClientCAFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read CAs: %w", err)
		}
		b, err := certs.ParseCAs(data, file, opts.Now)
		if err != nil {
			return nil, err
		}
		s.clientCAs = append(s.clientCAs, b...)
	}
	pairs, findings := s.checkPairs()
	findings = verify.Sort(append(findings, verify.Run(rules, s, dir)...))
	return verify.NewReport("KonnectivityReport", opts.Now, verify.CountObjects(append(s.parts(), pairs...), findings),
		findings), nil
}

// parts are the files and objects that have a role in the set.
func (s *set) parts() []verify.Checked {
	var out []verify.Checked
	if e, err := s.egress(); err == nil {
		out = append(out, verify.Checked{Object: e.where, Purpose: "egress"})
	}
	for _, r := range s.roles() {
		for _, p := range r.programs {
			out = append(out, verify.Checked{Object: p.String(), Purpose: verify.Purpose(r.name),
				Detail: p.container.Image})
		}
	}
	return out
}
