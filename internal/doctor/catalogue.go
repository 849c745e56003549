// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/certs/verify"
)

// Entry describes one kind of finding.
type Entry struct {
	ID       string          `json:"id"`
	Layer    string          `json:"layer"` // one of Layers
	Severity verify.Severity `json:"severity"`
	Title    string          `json:"title"`  // what is wrong
	Effect   string          `json:"effect"` // what users notice
	Fix      []Step          `json:"fix"`
	// Messages are literal error messages of an APIService that lead to the entry, Logs those in the
	// log of a server, and Client those of requests from this machine. "…" stands for any text.
	Messages []string `json:"messages,omitempty"`
	Logs     []string `json:"logs,omitempty"`
	Client   []string `json:"client,omitempty"`
	// ExplainedBy are the IDs of findings of which this one is a symptom.
	ExplainedBy []string `json:"explainedBy,omitempty"`

	expressions [3][]*regexp.Regexp // by source
}

// source is where a text comes from.
type source int

const (
	inMessage source = iota // the condition Available, or a response of the API
	inLog                   // the log of a server
	inClient                // an error of a request from this machine
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

// Catalogue returns all entries in the order of the file. The result must not be changed.
var Catalogue = sync.OnceValue(func() []Entry {
	entries, err := parseCatalogue(catalogueYAML)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return entries
})

func parseCatalogue(data []byte) ([]Entry, error) {
	var entries []Entry
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, fmt.Errorf("parse catalogue: %w", err)
	}
	for i := range entries {
		e := &entries[i]
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

// entry returns the entry of an ID. An unknown ID is a bug, so it panics.
func entry(id string) Entry {
	for _, e := range Catalogue() {
		if e.ID == id {
			return e
		}
	}
	panic("no entry of the catalogue has the ID " + id)
}

// classify returns the ID of the first entry with a message in the text from the source, or "". A01
// is skipped, because its messages do not tell a cause.
func classify(from source, text string) string {
	for _, e := range Catalogue() {
		for _, expression := range e.expressions[from] {
			if e.ID != unavailable && expression.MatchString(text) {
				return e.ID
			}
		}
	}
	return ""
}
