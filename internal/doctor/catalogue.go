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
	// Messages are literal error messages that lead to the entry. "…" stands for any text.
	Messages []string `json:"messages,omitempty"`
	// ExplainedBy are the IDs of findings of which this one is a symptom.
	ExplainedBy []string `json:"explainedBy,omitempty"`

	messages []*regexp.Regexp
}

// Step is one step of a fix.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command"`
}

// Layers are the layers of an aggregated API, from kube-apiserver to its effects elsewhere.
var Layers = []string{"trust", "apiservice", "service", "tls", "server", "permissions", "admission", "discovery",
	"openapi", "effects"}

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
		for _, message := range entries[i].Messages {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(message), "…", ".*")
			// A number at the end, such as a status, is complete.
			expression, err := regexp.Compile(pattern + `(\D|$)`)
			if err != nil {
				return nil, fmt.Errorf("parse message of %s: %w", entries[i].ID, err)
			}
			entries[i].messages = append(entries[i].messages, expression)
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

// classify returns the ID of the first entry with a message in the text, or "". A01 is skipped,
// because its messages do not tell a cause.
func classify(text string) string {
	for _, e := range Catalogue() {
		for _, message := range e.messages {
			if e.ID != unavailable && message.MatchString(text) {
				return e.ID
			}
		}
	}
	return ""
}
