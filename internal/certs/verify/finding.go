// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"slices"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // a peer refuses it, or a key is open to others
	Warning Severity = "warning" // it works, and will not for long or not everywhere
	Info    Severity = "info"    // good to know; nothing has to be done
)

// Rule is one thing that can be wrong.
type Rule struct {
	ID         string     `json:"id"`         // never used for anything else, so that scripts can rely on it
	Severities []Severity `json:"severities"` // that its findings can have, the worst first
	Meaning    string     `json:"meaning"`    // what is wrong, and for whom
	Fix        string     `json:"fix"`        // what to do when a finding says nothing better
}

// Finding is one thing that is wrong.
type Finding struct {
	ID       string   `json:"id"` // of its Rule
	Severity Severity `json:"severity"`
	Object   string   `json:"object"`   // the path of a file, or kind and name
	Evidence string   `json:"evidence"` // what was found; never a part of a key
	Fix      string   `json:"fix"`      // a command, or what to do next
}

// Check is a Rule with the function that finds it in a subject. What the function leaves empty in a Finding is filled
// in: the ID, the worst severity and the fix of the rule, and the object that Run was given.
type Check[T any] struct {
	Rule
	Find func(subject T) []Finding
}

// NewCheck returns a Check; without severities its findings are errors.
func NewCheck[T any](id string, find func(T) []Finding, meaning, fix string, severities ...Severity) Check[T] {
	if len(severities) == 0 {
		severities = []Severity{Error}
	}
	return Check[T]{Rule{id, severities, meaning, fix}, find}
}

// RulesOf returns the rules of checks, in their order.
func RulesOf[T any](checks []Check[T]) []Rule {
	var out []Rule
	for _, c := range checks {
		out = append(out, c.Rule)
	}
	return out
}

// Run does all checks on one subject, which findings call object.
func Run[T any](checks []Check[T], subject T, object string) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, f := range c.Find(subject) {
			f.ID = c.ID
			f.Severity = cmp.Or(f.Severity, c.Severities[0])
			f.Object = cmp.Or(f.Object, object)
			f.Fix = cmp.Or(f.Fix, c.Fix)
			out = append(out, f)
		}
	}
	return out
}

var severityOrder = []Severity{Error, Warning, Info}

// Sort puts the worst first, and gives the same order for the same findings. It drops doubles.
func Sort(findings []Finding) []Finding {
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severityOrder, a.Severity), slices.Index(severityOrder, b.Severity)),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Fix, b.Fix),
		)
	})
	return slices.Compact(findings)
}

// Summary counts.
type Summary struct {
	Checked int `json:"checked"`
	Counts
}

// Counts counts findings by severity.
type Counts struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// Count tallies findings.
func Count(findings []Finding) Counts {
	var t Counts
	for _, f := range findings {
		switch f.Severity {
		case Error:
			t.Errors++
		case Warning:
			t.Warnings++
		case Info:
			t.Infos++
		}
	}
	return t
}
