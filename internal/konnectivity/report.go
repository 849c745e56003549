// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"os"
	"time"

	"example.com/extension-apiserver/internal/catalogue"
	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// Options define what a set is checked against.
type Options struct {
	// ClientCAFiles contain the CAs of the cluster's users, none of which may identify agents.
	// CAs in kube-apiserver's --client-ca-file and in kubeconfigs are found without this option
	// if they are among the files.
	ClientCAFiles []string
	Now           time.Time
}

// Verify checks the set in a directory against all rules. The directory contains rendered
// manifests (*.yaml, *.yml, *.json) at any depth, and key pairs with the names of certgen init
// (konnectivity-agent-server/tls.crt). A file that a manifest names is found by the last two
// elements of its path. Faults of the set are findings. Verify returns an error only if the
// directory is unreadable or contains no manifests, or if a CA file is unreadable.
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
	findings = catalogue.Sort(append(findings, catalogue.Run(rules, s, dir)...))
	return verify.NewReport("KonnectivityReport", opts.Now, verify.CountObjects(append(s.parts(), pairs...), findings),
		findings), nil
}

// parts returns the files and objects that have a role in the set.
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
