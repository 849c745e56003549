// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
	"strings"

	"example.com/extension-apiserver/internal/catalogue"
)

// Finding is one problem that a check found.
type Finding struct {
	ID       string             `json:"id"` // of its Entry
	Severity catalogue.Severity `json:"severity"`
	Object   string             `json:"object"` // kind and name
	// APIServices are the names of those affected. Empty means all.
	APIServices []string         `json:"apiServices,omitempty"`
	Title       string           `json:"title"`
	Evidence    []string         `json:"evidence"`
	Effect      string           `json:"effect"`
	Fix         []catalogue.Step `json:"fix"`
	Docs        string           `json:"docs,omitempty"`

	// onlyCause means that it is a finding only if it explains another one.
	onlyCause bool
}

// Cause is a root cause with its symptoms.
type Cause struct {
	Finding
	Explains []Finding `json:"explains,omitempty"`
}

// newFinding returns a finding with the texts of its entry, in which {name} is replaced by the
// value of the parameter.
func newFinding(id, object string, apiServices []string, parameters map[string]string, evidence ...string) Finding {
	e := catalogue.Of(id)
	var pairs []string
	for name, value := range parameters {
		pairs = append(pairs, "{"+name+"}", value)
	}
	fill := strings.NewReplacer(pairs...).Replace
	f := Finding{ID: id, Severity: e.Severity, Object: object, APIServices: apiServices, Title: fill(e.Title),
		Evidence: evidence, Effect: fill(e.Effect), Docs: docsOf()}
	for _, step := range e.Fix {
		f.Fix = append(f.Fix, catalogue.Step{Text: fill(step.Text), Command: fill(step.Command)})
	}
	return f
}

// merge joins findings of the same ID and object, with the evidence and the APIServices of each.
func merge(findings []Finding) []Finding {
	var out []Finding
	for _, f := range findings {
		i := slices.IndexFunc(out, func(o Finding) bool { return o.ID == f.ID && o.Object == f.Object })
		if i < 0 {
			out = append(out, f)
			continue
		}
		out[i].Evidence = union(out[i].Evidence, f.Evidence)
		out[i].APIServices = union(out[i].APIServices, f.APIServices)
		out[i].onlyCause = out[i].onlyCause && f.onlyCause
	}
	return out
}

// union returns a copy of a with the elements of b that it lacks.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// rootCauses returns the findings that no other finding explains, the worst first, each with the
// findings that it explains, also through others.
func rootCauses(findings []Finding) []Cause {
	var out []Cause
	for i, f := range findings {
		if !slices.ContainsFunc(findings, func(other Finding) bool { return explains(other, f) }) {
			out = append(out, Cause{Finding: findings[i], Explains: symptoms(findings, f)})
		}
	}
	slices.SortStableFunc(out, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(layerOf(a.ID), layerOf(b.ID)),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Object, b.Object))
	})
	return out
}

// symptoms returns the findings that the root explains directly or through others, the nearest
// first.
func symptoms(findings []Finding, root Finding) []Finding {
	var out []Finding
	seen := []string{root.ID + root.Object}
	for queue := []Finding{root}; len(queue) > 0; queue = queue[1:] {
		for _, f := range findings {
			if key := f.ID + f.Object; explains(queue[0], f) && !slices.Contains(seen, key) {
				seen, out, queue = append(seen, key), append(out, f), append(queue, f)
			}
		}
	}
	return out
}

// explains reports whether the cause is in the entry of the symptom and both affect the same
// APIService.
func explains(cause, symptom Finding) bool {
	return slices.Contains(catalogue.Of(symptom.ID).ExplainedBy, cause.ID) &&
		(len(cause.APIServices) == 0 || len(symptom.APIServices) == 0 ||
			slices.ContainsFunc(cause.APIServices, func(name string) bool {
				return slices.Contains(symptom.APIServices, name)
			}))
}

func rank(s catalogue.Severity) int {
	return slices.Index([]catalogue.Severity{catalogue.Error, catalogue.Warning, catalogue.Info}, s)
}

func layerOf(id string) int { return slices.Index(catalogue.Layers, catalogue.Of(id).Layer) }

// classify returns the ID of the first entry with a message in the text from the source, or "". A01
// is skipped, because its messages do not tell a cause.
func classify(from catalogue.Source, text string) string {
	for _, e := range catalogue.Entries() {
		if e.ID != unavailable && e.Matches(from, text) {
			return e.ID
		}
	}
	return ""
}
