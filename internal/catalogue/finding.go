// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"cmp"
	"slices"
)

// Severity is the severity of a finding.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // a peer rejects it, or others can access a key
	Warning Severity = "warning" // it works, but not for long or not everywhere
	Info    Severity = "info"    // for information; no action is needed
)

// Rule describes a problem that a check of certgen finds.
type Rule struct {
	ID         string     `json:"id"`
	Severities []Severity `json:"severities"` // of its findings, the worst first
	Meaning    string     `json:"meaning"`    // what is wrong, and for whom
	Fix        string     `json:"fix"`        // what to do, unless the finding has a more specific fix
}

// Finding is one problem that a check found.
type Finding struct {
	ID       string   `json:"id"` // of its Rule
	Severity Severity `json:"severity"`
	Object   string   `json:"object"`   // the path of a file, or kind and name
	Evidence string   `json:"evidence"` // what was found; never a part of a key
	Fix      string   `json:"fix"`      // a command, or what to do next
}

// Check is a Rule with the function that finds its problem in a subject. Run fills in the fields
// that the function leaves empty in a Finding: the rule's ID, worst severity and fix, and the
// object.
type Check[T any] struct {
	Rule
	Find func(subject T) []Finding
}

// NewCheck returns a Check with the rule of an ID. An ID without a rule is a bug, so it panics.
func NewCheck[T any](id string, find func(T) []Finding) Check[T] { return Check[T]{RuleOf(id), find} }

// RuleOf returns the rule of an ID. An ID without a rule is a bug, so it panics.
func RuleOf(id string) Rule { return *Of(id).Certgen }

// RulesOf returns the rules of checks, in the same order.
func RulesOf[T any](checks []Check[T]) []Rule {
	var out []Rule
	for _, c := range checks {
		out = append(out, c.Rule)
	}
	return out
}

// Run runs all checks on one subject. object is the subject's name in findings.
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

// Sort sorts findings in place by severity, the worst first, and removes duplicates. The order
// is deterministic.
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

// Summary contains the number of checked objects and of findings.
type Summary struct {
	Checked int `json:"checked"`
	Counts
}

// Counts contains the number of findings of each severity.
type Counts struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// Count counts findings by severity.
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
