// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/catalogue"
)

// docsURL is the URL of the folder docs/, set by the linker. Without it, findings have no link.
var docsURL string

func docsOf() string {
	if docsURL == "" {
		return ""
	}
	return strings.TrimSuffix(docsURL, "/") + "/operate/troubleshooting.md#findings-of-the-doctor"
}

// Report is the diagnosis of a cluster.
type Report struct {
	APIVersion  string    `json:"apiVersion"`
	Kind        string    `json:"kind"`
	GeneratedAt time.Time `json:"generatedAt"`
	Kubernetes  string    `json:"kubernetes"` // the version of kube-apiserver
	// APIServices are the names of those that were diagnosed.
	APIServices []string `json:"apiServices"`
	Layers      []Layer  `json:"layers"`
	RootCauses  []Cause  `json:"rootCauses"` // the worst first
	Unread      []Unread `json:"unread"`     // facts that could not be read
	Skipped     []Skip   `json:"skipped"`    // checks without a result
	Requests    int64    `json:"requests"`   // to kube-apiserver
}

// State is the state of a layer.
type State string

// The states.
const (
	Healthy State = "healthy"
	Faulty  State = "faulty"
	// Skipped means that there is no finding, but a fact could not be read or a check was skipped.
	Skipped State = "skipped"
)

// Layer is the state of a layer.
type Layer struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"` // the IDs of findings, or why it was skipped
}

// NewReport checks the facts.
func NewReport(f *Facts) *Report {
	findings := f.Check()
	// No list is null in JSON.
	r := &Report{APIVersion: "aggregation.example.com/v1alpha1", Kind: "DoctorReport",
		GeneratedAt: f.Now.UTC().Truncate(time.Second), Kubernetes: f.Kubernetes, APIServices: []string{},
		RootCauses: append([]Cause{}, rootCauses(findings)...), Unread: append([]Unread{}, f.Unread...),
		Skipped: f.skips(findings), Requests: f.Requests}
	for _, a := range f.APIServices {
		r.APIServices = append(r.APIServices, a.Name)
	}
	for _, name := range catalogue.Layers {
		r.Layers = append(r.Layers, layer(name, findings, r.Unread, r.Skipped))
	}
	return r
}

func layer(name string, findings []Finding, unread []Unread, skips []Skip) Layer {
	var ids, skipped []string
	for _, f := range findings {
		if catalogue.Of(f.ID).Layer == name {
			ids = union(ids, []string{f.ID})
		}
	}
	for _, u := range unread {
		if u.Layer == name {
			skipped = union(skipped, []string{"could not " + u.What})
		}
	}
	for _, s := range skips {
		if s.Layer == name {
			skipped = union(skipped, []string{s.ID + " was not checked"})
		}
	}
	switch {
	case len(ids) > 0:
		return Layer{name, Faulty, strings.Join(ids, ", ")}
	case len(skipped) > 0:
		return Layer{name, Skipped, strings.Join(skipped, ", ")}
	}
	return Layer{name, Healthy, ""}
}

// Formats are the formats that Write supports.
var Formats = []string{"text", "json", "yaml", "junit"}

// Write writes the report in one of the Formats. quiet omits the layers from text.
func (r *Report) Write(w io.Writer, format string, quiet bool) error {
	switch format {
	case "text":
		return r.writeText(w, quiet)
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "yaml":
		data, err := yaml.Marshal(r)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	case "junit":
		return r.writeJUnit(w)
	}
	return fmt.Errorf("the format is %q: must be one of %s", format, strings.Join(Formats, ", "))
}

var signs = map[State]string{Healthy: "✓", Faulty: "✗", Skipped: "–"}

func (r *Report) writeText(w io.Writer, quiet bool) error {
	var text strings.Builder
	if !quiet {
		for _, l := range r.Layers {
			text.WriteString(strings.TrimRight(fmt.Sprintf("%s %-12s %s", signs[l.State], l.Name, l.Detail), " ") + "\n")
		}
		var unread []string
		for _, u := range r.Unread {
			unread = union(unread, []string{fmt.Sprintf("  could not %s: %s\n", u.What, u.Reason)})
		}
		text.WriteString(strings.Join(unread, ""))
		for _, s := range r.Skipped {
			fmt.Fprintf(&text, "  %s was not checked: %s: %s\n", s.ID, s.Object, s.Reason)
		}
	}
	for _, c := range r.RootCauses {
		if text.Len() > 0 {
			text.WriteString("\n")
		}
		c.writeText(&text)
	}
	if !quiet {
		fmt.Fprintf(&text, "\nKubernetes %s, APIServices: %d, root causes: %d, facts not read: %d, requests: %d\n",
			cmp.Or(r.Kubernetes, "(unknown)"), len(r.APIServices), len(r.RootCauses), len(r.Unread), r.Requests)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (c Cause) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s %s: %s\n", c.ID, c.Severity, c.Title)
	line := func(label, text string) {
		fmt.Fprintf(w, "  %-10s%s\n", label, strings.ReplaceAll(text, "\n", "\n            "))
	}
	line("object", c.Object)
	for _, evidence := range c.Evidence {
		line("evidence", evidence)
	}
	line("effect", c.Effect)
	for _, step := range c.Fix {
		line("fix", step.Text)
		line("", "  "+step.Command)
	}
	if c.Docs != "" {
		line("docs", c.Docs)
	}
	for _, f := range c.Explains {
		line("explains", fmt.Sprintf("%s %s: %s", f.ID, f.Object, f.Title))
	}
}

// The format that CI systems read: https://github.com/testmoapp/junitxml
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a test case for each layer and for each root cause.
func (r *Report) writeJUnit(w io.Writer) error {
	suite := junitSuite{Name: "kubectl aggregation doctor"}
	for _, l := range r.Layers {
		c := junitCase{Name: l.Name, Class: "layer"}
		if l.State == Skipped {
			c.Skipped = &junitMessage{Message: l.Detail}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, cause := range r.RootCauses {
		var text strings.Builder
		cause.writeText(&text)
		suite.Cases = append(suite.Cases, junitCase{Name: cause.ID + " " + cause.Object, Class: "cause",
			Failure: &junitMessage{cause.Title, text.String()}})
		suite.Failures++
	}
	suite.Tests = len(suite.Cases)
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Summary returns the IDs and objects of the root causes, a line each. It is the same for two
// reports with the same root causes.
func (r *Report) Summary() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d APIServices\n", len(r.APIServices))
	for _, c := range r.RootCauses {
		fmt.Fprintf(&text, "%s %s\n", c.ID, c.Object)
	}
	return text.String()
}
