// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// query is an expression as parsed by Prometheus.
type query struct {
	Error     string
	Selectors []selector
	By        []string // the grouping labels
	Above     *float64 // the number at the end of "... > 5"
}

// selector is a metric in an expression; its name is the label __name__.
type selector []struct{ Label, Op, Value string }

// parsed caches the queries by their expressions: many tests read the same ones.
var parsed sync.Map

// parsePromQL parses expressions with Prometheus' parser.
func parsePromQL(t testing.TB, expressions ...string) []query {
	t.Helper()
	isNew := slices.DeleteFunc(slices.Clone(expressions), func(e string) bool { _, ok := parsed.Load(e); return ok })
	if len(isNew) > 0 {
		queries := make([]query, len(isNew))
		runMonitoring(t, "parse", isNew, &queries)
		for i, q := range queries {
			parsed.Store(isNew[i], q)
		}
	}
	queries := make([]query, len(expressions))
	for i, expression := range expressions {
		q, _ := parsed.Load(expression)
		queries[i] = q.(query)
	}
	return queries
}

// runMonitoring runs the program in the folder monitoring.
func runMonitoring(t testing.TB, command string, inputs, outputs any) {
	t.Helper()
	input, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", command)
	cmd.Dir, cmd.Stdin, cmd.Stderr = "monitoring", bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go run ./test/manifests/monitoring %s: %v\n%s", command, err, &stderr)
	}
	if err := json.Unmarshal(out, outputs); err != nil {
		t.Fatal(err)
	}
}

// matches reports whether the selector selects the metric, or a part of the histogram of that
// name.
func (s selector) matches(metric string) bool {
	return slices.ContainsFunc([]string{"", "_bucket", "_count", "_sum"},
		func(part string) bool { return s.label("__name__", metric+part) })
}

// label reports whether the selector has a matcher for the label that accepts the value.
func (s selector) label(name, value string) bool {
	for _, m := range s {
		if m.Label == name {
			return m.Op == "=" && m.Value == value || m.Op == "=~" &&
				regexp.MustCompile("^(?:"+m.Value+")$").MatchString(value)
		}
	}
	return false
}

// String returns the name of the metric.
func (s selector) String() string {
	for _, m := range s {
		if m.Label == "__name__" {
			return m.Value
		}
	}
	return "no name"
}

// watched returns the metrics in the table of docs/operate/monitoring.md, and their sources. The
// metrics of the kit are in the table of metricsPage.
func watched(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	page := readFile(t, filepath.Join("..", "..", "docs", "operate", "monitoring.md"))
	_, table, _ := strings.Cut(page, "\n| metric | source | meaning |\n|---|---|---|\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) < 3 {
			break
		}
		for _, name := range regexp.MustCompile("`([a-zA-Z_]+)`").FindAllStringSubmatch(cells[0], -1) {
			out[name[1]] = cells[1]
		}
	}
	if len(out) == 0 {
		t.Fatal("docs/operate/monitoring.md has no table of metrics")
	}
	for _, name := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(readFile(t, metricsPage),
		-1) {
		out[name[1]] = "the server"
	}
	return out
}
