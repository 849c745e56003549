// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"
)

// Outcome is the outcome of a check.
type Outcome string

// The outcomes of checks.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Report is the result of a run.
type Report struct {
	// Resource is the resource of the target, Kind its kind, and Server the version of
	// kube-apiserver.
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Server   string `json:"server"`
	// Started is the start time of the run.
	Started time.Time `json:"started"`
	// Seconds is the duration of the run.
	Seconds float64 `json:"seconds"`
	// Results are the results of the checks, in the order of Checks.
	Results []Result `json:"results"`
	// Left describes objects that could not be deleted.
	Left []string `json:"left,omitempty"`
	// Incomplete is the reason why checks were skipped, if the run timed out or was interrupted.
	Incomplete string `json:"incomplete,omitempty"`
}

// Result is the result of one check.
type Result struct {
	ID      string  `json:"id"`
	Level   Level   `json:"level"`
	Source  string  `json:"source"`
	Text    string  `json:"text"`
	Outcome Outcome `json:"outcome"`
	// Known is true for a check that the target is known to fail.
	Known bool `json:"known,omitempty"`
	// Messages describe the errors, or why the check was skipped.
	Messages []string `json:"messages,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Exchanges are the requests and responses of a failed check. Long bodies are truncated.
	Exchanges []Exchange `json:"exchanges,omitempty"`
}

// Exchange is a request and its response.
type Exchange struct {
	Request  string `json:"request"`
	Body     string `json:"body,omitempty"`
	Code     int    `json:"code,omitempty"`
	Response string `json:"response,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Unexpected reports whether a required or recommended check failed that is not known to fail, or
// whether a check that is known to fail passed.
func (r *Result) Unexpected() bool {
	if r.Known {
		return r.Outcome == Passed
	}
	return r.Outcome == Failed && r.Level != Optional
}

// Unexpected returns the unexpected results.
func (r *Report) Unexpected() []Result {
	var out []Result
	for _, result := range r.Results {
		if result.Unexpected() {
			out = append(out, result)
		}
	}
	return out
}

// Count returns the number of checks of a level with an outcome. An empty level means all levels.
func (r *Report) Count(level Level, outcome Outcome) int {
	n := 0
	for _, result := range r.Results {
		if (level == "" || result.Level == level) && result.Outcome == outcome {
			n++
		}
	}
	return n
}

// Failed returns the failed checks, including those that are known to fail.
func (r *Report) Failed() []Result {
	var out []Result
	for _, result := range r.Results {
		if result.Outcome == Failed {
			out = append(out, result)
		}
	}
	return out
}
