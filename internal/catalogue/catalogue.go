// SPDX-License-Identifier: Apache-2.0

// Package catalogue defines the findings of certgen and of kubectl aggregation doctor. Both use the
// same ID for the same problem.
package catalogue

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// Entry describes one problem. The fields from Layer to ExplainedBy are those of the doctor, and
// empty if it does not find the problem.
type Entry struct {
	ID       string   `json:"id"`              // never used for another problem, so that scripts can rely on it
	Layer    string   `json:"layer,omitempty"` // one of Layers
	Severity Severity `json:"severity,omitempty"`
	Title    string   `json:"title,omitempty"`  // what is wrong
	Effect   string   `json:"effect,omitempty"` // what users notice
	Fix      []Step   `json:"fix,omitempty"`
	// Messages are literal error messages of an APIService that lead to the entry, Logs those in the
	// log of a server, and Client those of requests from this machine. "…" stands for any text.
	Messages []string `json:"messages,omitempty"`
	Logs     []string `json:"logs,omitempty"`
	Client   []string `json:"client,omitempty"`
	// ExplainedBy are the IDs of findings of which this one is a symptom.
	ExplainedBy []string `json:"explainedBy,omitempty"`
	// Certgen is the rule of certgen's check, or nil if it does not find the problem.
	Certgen *Rule `json:"certgen,omitempty"`

	expressions [3][]*regexp.Regexp // by source
}

// Source is where a text comes from.
type Source int

// The sources.
const (
	InMessage Source = iota // the condition Available, or a response of the API
	InLog                   // the log of a server
	InClient                // an error of a request from this machine
)

// Step is one step of a fix.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

// Layers are the layers of an aggregated API, from the client to its effects elsewhere.
var Layers = []string{"client", "trust", "apiservice", "service", "tls", "server", "permissions", "storage",
	"admission", "discovery", "openapi", "effects"}

//go:embed catalogue.yaml
var catalogueYAML []byte

// Entries returns all entries in the order of the file. The result must not be changed.
var Entries = sync.OnceValue(func() []Entry {
	entries, err := parse(catalogueYAML)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return entries
})

func parse(data []byte) ([]Entry, error) {
	var entries []Entry
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, fmt.Errorf("parse catalogue: %w", err)
	}
	for i := range entries {
		e := &entries[i]
		if e.Certgen != nil {
			e.Certgen.ID = e.ID
		}
		for from, messages := range [][]string{e.Messages, e.Logs, e.Client} {
			for _, message := range messages {
				pattern := strings.ReplaceAll(regexp.QuoteMeta(message), "…", ".*")
				// A number at the end, such as a status, is complete.
				expression, err := regexp.Compile(pattern + `(\D|$)`)
				if err != nil {
					return nil, fmt.Errorf("parse message of %s: %w", e.ID, err)
				}
				e.expressions[from] = append(e.expressions[from], expression)
			}
		}
	}
	return entries, nil
}

// Of returns the entry of an ID. An unknown ID is a bug, so it panics.
func Of(id string) Entry {
	for _, e := range Entries() {
		if e.ID == id {
			return e
		}
	}
	panic("no entry of the catalogue has the ID " + id)
}

// Matches returns whether the text from the source contains one of the messages of the entry.
func (e Entry) Matches(from Source, text string) bool {
	return slices.ContainsFunc(e.expressions[from], func(x *regexp.Regexp) bool { return x.MatchString(text) })
}
