// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"os"
	"slices"
	"time"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/certs/verify"
)

// Options are what a set is checked against.
type Options struct {
	// ClientCAFiles hold the CAs of the cluster's users, none of which may decide who is an agent. The CAs of kube-apiserver's
	// --client-ca-file and of kubeconfigs are found without it where they are among the files.
	ClientCAFiles []string
	Now           time.Time
}

// Report says what was checked and what was found.
type Report struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"` // KonnectivityReport
	GeneratedAt time.Time `json:"generatedAt"`
	Checked     []Part    `json:"checked"`
	verify.Results
}

// Part is a file or an object that has a role in the set.
type Part struct {
	Role   string `json:"role"`   // egress, kube-apiserver, konnectivity-server or konnectivity-agent
	Object string `json:"object"` // its file, and kind and name
	Image  string `json:"image,omitempty"`
}

// Verify checks the set in a directory against all rules. The directory holds rendered manifests (*.yaml, *.yml, *.json) anywhere
// below it, and the pairs under the names that certgen init gives them (konnectivity-agent-server/tls.crt): a file that a manifest
// names is found by the last two parts of its path. Faults of the set are findings; Verify fails only if the directory cannot be
// read or holds no manifests, or if a file of CAs cannot be read.
func Verify(dir string, opts Options) (*Report, error) {
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
	findings := slices.Concat(verify.Run(rules, s, dir), s.pairFindings())
	r := &Report{
		APIVersion: certs.APIVersion, Kind: "KonnectivityReport", GeneratedAt: opts.Now.UTC().Truncate(time.Second),
		Checked: s.parts(),
	}
	r.Results = verify.NewResults(findings, len(r.Checked))
	return r, nil
}

func (s *set) parts() []Part {
	out := []Part{}
	if e, err := s.egress(); err == nil {
		out = append(out, Part{Role: "egress", Object: e.where})
	}
	for _, r := range s.roles() {
		for _, p := range r.programs {
			out = append(out, Part{Role: r.name, Object: p.String(), Image: p.container.Image})
		}
	}
	return out
}
