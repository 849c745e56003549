// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	_ "embed"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Formats are the formats that Write supports.
var Formats = []string{"text", "json", "junit", "html"}

// Write writes the report in one of the Formats.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.writeText(w)
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "junit":
		return r.writeJUnit(w)
	case "html":
		return page.Execute(w, r)
	}
	return fmt.Errorf("the format is %q: must be one of %s", format, strings.Join(Formats, ", "))
}

// writeText writes the unexpected results, the reasons of skipped checks, and a line for each
// area.
func (r *Report) writeText(w io.Writer) error {
	for _, result := range r.Results {
		switch {
		case result.Known && result.Outcome == Failed:
			fmt.Fprintf(w, "failed %s (%s), known\n", result.ID, result.Level)
			continue
		case result.Outcome == Failed:
			fmt.Fprintf(w, "FAILED %s (%s): %s\n", result.ID, result.Level, result.Text)
		case result.Unexpected():
			fmt.Fprintf(w, "PASSED %s (%s): %s\n", result.ID, result.Level, result.Text)
		default:
			continue
		}
		for _, message := range result.Messages {
			fmt.Fprintf(w, "  %s\n", message)
		}
		fmt.Fprintf(w, "  see %s\n", result.Source)
	}
	skipped := map[string]int{}
	for _, result := range r.Results {
		if result.Outcome == Skipped {
			skipped[strings.Join(result.Messages, "; ")]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(w, "skipped %d: %s\n", skipped[reason], reason)
	}
	if r.Incomplete != "" {
		fmt.Fprintf(w, "INCOMPLETE %s\n", r.Incomplete)
	}
	for _, left := range r.Left {
		fmt.Fprintf(w, "LEFT BEHIND %s\n", left)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "\nAREA\tPASSED\tFAILED\tSKIPPED\n")
	for _, area := range r.Areas() {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", area.Name, area.Passed, area.Failed, area.Skipped)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w,
		"\n%s (%s) on Kubernetes %s: %d passed, %d failed (%d required, %d recommended, %d optional), %d skipped, "+
			"in %.0f s\n",
		r.Resource, r.Kind, r.Server, r.Count("", Passed), r.Count("", Failed), r.Count(Required, Failed),
		r.Count(Recommended, Failed),
		r.Count(Optional, Failed), r.Count("", Skipped), r.Seconds)
	return err
}

// Area contains the numbers of results of one area.
type Area struct {
	Name                    string
	Passed, Failed, Skipped int
}

// Areas returns the areas of the results, in their order.
func (r *Report) Areas() []Area {
	var out []Area
	for _, result := range r.Results {
		name, _, _ := strings.Cut(result.ID, "/")
		if len(out) == 0 || out[len(out)-1].Name != name {
			out = append(out, Area{Name: name})
		}
		area := &out[len(out)-1]
		switch result.Outcome {
		case Passed:
			area.Passed++
		case Failed:
			area.Failed++
		case Skipped:
			area.Skipped++
		}
	}
	return out
}

// The format that CI systems read: https://github.com/testmoapp/junitxml
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit reports failed checks that are optional or known to fail as skipped, so that they do
// not fail a build.
func (r *Report) writeJUnit(w io.Writer) error {
	suite := junitSuite{Name: "conformance " + r.Resource, Tests: len(r.Results), Time: r.Seconds}
	for _, result := range r.Results {
		area, _, _ := strings.Cut(result.ID, "/")
		c := junitCase{Name: result.ID, Class: r.Resource + "." + area, Time: result.Seconds}
		message := &junitMessage{Message: fmt.Sprintf("%s (%s, %s)", result.Text, result.Level, result.Source),
			Text: strings.Join(result.Messages, "\n")}
		switch {
		case result.Unexpected():
			c.Failure = message
			suite.Failures++
		case result.Outcome != Passed:
			c.Skipped = message
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	for name, text := range map[string]string{"incomplete": r.Incomplete, "left-behind": strings.Join(r.Left, "\n")} {
		if text != "" {
			suite.Cases = append(suite.Cases, junitCase{Name: name, Class: r.Resource + ".run",
				Failure: &junitMessage{Message: name, Text: text}})
			suite.Tests++
			suite.Failures++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Parse(pageText))
