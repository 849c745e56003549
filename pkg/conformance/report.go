// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"
)

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Report is the result of a run.
type Report struct {
	// Resource is that of the target, Kind its kind, and Server the version of kube-apiserver.
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Server   string `json:"server"`
	// Started is when the run began.
	Started time.Time `json:"started"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Results are those of the checks, in the order of Checks.
	Results []Result `json:"results"`
	// Left is what could not be deleted.
	Left []string `json:"left,omitempty"`
	// Incomplete says why checks were skipped for the time that the run had, or because it was interrupted.
	Incomplete string `json:"incomplete,omitempty"`
}

// Result is that of one check.
type Result struct {
	ID      string  `json:"id"`
	Level   Level   `json:"level"`
	Source  string  `json:"source"`
	Text    string  `json:"text"`
	Outcome Outcome `json:"outcome"`
	// Known is true for a check that the target is known to fail.
	Known bool `json:"known,omitempty"`
	// Messages say what was wrong, or why the check was skipped.
	Messages []string `json:"messages,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Exchanges are the requests and answers of a check that failed; long bodies are cut.
	Exchanges []Exchange `json:"exchanges,omitempty"`
}

// Exchange is a request and its answer.
type Exchange struct {
	Request  string `json:"request"`
	Body     string `json:"body,omitempty"`
	Code     int    `json:"code,omitempty"`
	Response string `json:"response,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Unexpected is true for a required or recommended check that failed, and is not known to fail; and for one that is,
// and passed.
func (r *Result) Unexpected() bool {
	if r.Known {
		return r.Outcome == Passed
	}
	return r.Outcome == Failed && r.Level != Optional
}

// Unexpected returns the results that are.
func (r *Report) Unexpected() []Result {
	var out []Result
	for _, result := range r.Results {
		if result.Unexpected() {
			out = append(out, result)
		}
	}
	return out
}

// Count is how many checks of a level ended so. An empty level stands for all.
func (r *Report) Count(level Level, outcome Outcome) int {
	n := 0
	for _, result := range r.Results {
		if (level == "" || result.Level == level) && result.Outcome == outcome {
			n++
		}
	}
	return n
}

// Failed returns the failed checks, whether they are known to fail or not.
func (r *Report) Failed() []Result {
	var out []Result
	for _, result := range r.Results {
		if result.Outcome == Failed {
			out = append(out, result)
		}
	}
	return out
}
