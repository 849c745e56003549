// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// dashboard has the fields of a Grafana dashboard that the tests check.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Editable      *bool
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	Targets                  []target
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []step }
		}
	}
}

type target struct{ Expr, LegendFormat string }

type step struct {
	Color string
	Value *float64 // nil in the first step
}

func (s step) String() string {
	if s.Value == nil {
		return s.Color
	}
	return fmt.Sprintf("%s from %v", s.Color, *s.Value)
}

// reddens reports whether the panel turns red at a value between from and to, inclusive.
func (p panel) reddens(from, to float64) bool {
	return slices.ContainsFunc(p.FieldConfig.Defaults.Thresholds.Steps, func(s step) bool {
		return s.Color == "red" && s.Value != nil && from <= *s.Value && *s.Value <= to
	})
}

func dashboards(t testing.TB, objects []*unstructured.Unstructured) (*corev1.ConfigMap, *dashboard) {
	t.Helper()
	for _, cm := range only[corev1.ConfigMap](t, objects, "ConfigMap") {
		if cm.Labels["grafana_dashboard"] == "1" {
			d := &dashboard{}
			if err := json.Unmarshal([]byte(cm.Data["dashboard.json"]), d); err != nil {
				t.Fatalf("dashboard.json: %v", err)
			}
			return cm, d
		}
	}
	return nil, nil
}

// dashboardProblems checks that the dashboard belongs to the project and can be rendered. It must
// show exactly the metrics of docs/operate/monitoring.md, and for each alert its subject and
// threshold.
func dashboardProblems(r rendered) []string {
	cm, d := dashboards(r, r.objects)
	if d == nil {
		if len(alerts(r, r.objects)) > 0 {
			return []string{"there are alerts and no dashboard"}
		}
		return nil
	}
	var problems []string
	name := service(r, r.objects).Name
	for what, got := range map[string]string{"uid": d.UID, "title": d.Title,
		"folder": cm.Annotations["k8s-sidecar-target-directory"]} {
		if got != name {
			problems = append(problems, fmt.Sprintf("the %s is %q, want %q", what, got, name))
		}
	}
	want := map[string]string{"job": "label_values(up{job='" + name + "'}, job)",
		"apiservices": alerted(r.T, r.objects)}
	for _, v := range d.Templating.List {
		if query, ok := want[v.Name]; ok && query == v.Query {
			delete(want, v.Name)
		}
	}
	if len(want) > 0 {
		problems = append(problems, fmt.Sprintf("no variables %q", want))
	}
	// From 39 on Grafana 11 migrates nothing.
	if d.SchemaVersion < 39 || d.Editable == nil || *d.Editable {
		problems = append(problems, fmt.Sprintf("schemaVersion %d, want 39 or later, and editable false",
			d.SchemaVersion))
	}
	return slices.Concat(problems, layoutProblems(d.Panels), queryProblems(r, d), thresholdProblems(r, d))
}

// units are those in use; Grafana shows a number without a unit if it does not know the unit.
var units = []string{"none", "short", "percentunit", "s", "dtdurations", "bytes", "reqps", "cps"}

// layoutProblems checks that every panel is built into Grafana, and has a position, a title, a
// description, a unit and the selected data source.
func layoutProblems(panels []panel) []string {
	var problems []string
	ids := sets.New[int]()
	for i, p := range panels {
		if ids.Has(p.ID) || p.ID < 1 {
			problems = append(problems, fmt.Sprintf("panel %q: id %d is used twice, or is none", p.Title, p.ID))
		}
		ids.Insert(p.ID)
		a := p.GridPos
		if a.X < 0 || a.Y < 0 || a.W < 1 || a.H < 1 || a.X+a.W > 24 {
			problems = append(problems, fmt.Sprintf("panel %q: %+v is not within 24 columns", p.Title, a))
		}
		for _, other := range panels[:i] {
			if b := other.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				problems = append(problems, fmt.Sprintf("panels %q and %q overlap: %+v, %+v", other.Title,
					p.Title, b, a))
			}
		}
		switch p.Type {
		case "row":
			continue
		case "stat", "timeseries", "state-timeline", "heatmap":
		default:
			problems = append(problems, fmt.Sprintf("panel %q: unexpected type %q", p.Title, p.Type))
		}
		if p.Title == "" || p.Description == "" {
			problems = append(problems, fmt.Sprintf("panel %q: title %q, description %q, want both", p.Title, p.Title,
				p.Description))
		}
		if unit := p.FieldConfig.Defaults.Unit; !slices.Contains(units, unit) {
			problems = append(problems, fmt.Sprintf("panel %q: unit %q, want one of %v", p.Title, unit, units))
		}
		if p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" || len(p.Targets) == 0 {
			problems = append(problems,
				fmt.Sprintf("panel %q: data source %+v with %d queries, want ${datasource} and some", p.Title,
					p.Datasource, len(p.Targets)))
		}
	}
	return problems
}

// variables replaces the variables of Grafana with values.
var variables = strings.NewReplacer("$job", "JOB", "$namespace", "NAMESPACE", "$instance", "INSTANCE", "$apiservices",
	"APISERVICES", "$__rate_interval", "5m", "$__range", "6h")

// labelValues matches the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), \w+\)$`)

// metricQuery is a query of a dashboard or an alert.
type metricQuery struct {
	by, expression string
	query
}

// metricQueries returns the queries of the panels, annotations and variables.
func (d *dashboard) metricQueries(t testing.TB) []metricQuery {
	t.Helper()
	var out []metricQuery
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out = append(out, metricQuery{by: p.Title, expression: target.Expr})
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			out = append(out, metricQuery{by: "annotations", expression: a.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			out = append(out, metricQuery{by: "variable " + v.Name,
				expression: labelValues.ReplaceAllString(v.Query, "$1")})
		}
	}
	var expressions []string
	for i := range out {
		out[i].expression = variables.Replace(out[i].expression)
		expressions = append(expressions, out[i].expression)
	}
	for i, q := range parsePromQL(t, expressions...) {
		out[i].query = q
	}
	return out
}

// queryProblems checks that Prometheus can parse each query, and that it selects the chosen
// servers. Together the queries must use the metrics of docs/operate/monitoring.md.
func queryProblems(r rendered, d *dashboard) []string {
	var problems []string
	all := watched(r)
	shown := sets.New[string]()
	for _, q := range d.metricQueries(r) {
		if q.Error != "" || strings.Contains(q.expression, "$") {
			problems = append(problems, fmt.Sprintf("%s: %s %s", q.by, q.expression, q.Error))
		}
		for _, s := range q.Selectors {
			of := ""
			for metric, owner := range all {
				if s.matches(metric) {
					of = owner
					shown.Insert(metric)
				}
			}
			if of == "" {
				problems = append(problems, fmt.Sprintf("%s: %s is not in the table of docs/operate/monitoring.md", q.by, s))
			}
			chosen := s.label("job", "JOB") && s.label("namespace", "NAMESPACE") && s.label("instance", "INSTANCE")
			if !chosen && of == "the server" {
				problems = append(problems,
					fmt.Sprintf("%s: %s is queried without job, namespace and instance as they were chosen", q.by, s))
			}
		}
	}
	for _, metric := range sets.List(sets.KeySet(all).Difference(shown)) {
		problems = append(problems, fmt.Sprintf("%s of docs/operate/monitoring.md is on no panel", metric))
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + label[1] + `\b`).MatchString(target.Expr) {
					problems = append(problems, fmt.Sprintf("%s: the legend has %s, by which %s is not grouped",
						p.Title, label[1], target.Expr))
				}
			}
		}
	}
	return problems
}

var alertName = regexp.MustCompile(`\bExtensionAPI\w+`)

// thresholdProblems checks that a panel with the metrics of each alert refers to the alert, and
// turns red where the alert fires.
func thresholdProblems(r rendered, d *dashboard) []string {
	var problems []string
	known := sets.New[string]()
	var expressions []string
	for _, a := range alerts(r, r.objects) {
		expressions = append(expressions, a.Expr)
	}
	parsePromQL(r, expressions...) // all at once
	limit := float64(server(r, r.objects).pod.Spec.Containers[0].Resources.Limits.Memory().Value())
	for _, a := range alerts(r, r.objects) {
		known.Insert(a.Alert)
		named := 0
		for _, p := range d.Panels {
			if slices.Contains(alertName.FindAllString(p.Description, -1), a.Alert) {
				named++
				problems = append(problems, alertProblems(r, a, p)...)
			}
		}
		if named == 0 {
			problems = append(problems, fmt.Sprintf("no panel names the alert %s", a.Alert))
		}
	}
	for _, p := range d.Panels {
		for _, name := range alertName.FindAllString(p.Description, -1) {
			if !known.Has(name) {
				problems = append(problems, fmt.Sprintf("panel %q names the alert %s, which there is not",
					p.Title, name))
			}
		}
		if slices.ContainsFunc(p.Targets, func(t target) bool {
			return strings.Contains(t.Expr,
				"process_resident_memory_bytes")
		}) && !p.reddens(limit, limit) {
			problems = append(problems, fmt.Sprintf("panel %q: %v, want red from the limit %v on", p.Title,
				p.FieldConfig.Defaults.Thresholds.Steps, limit))
		}
	}
	return problems
}

func alertProblems(t testing.TB, a alert, p panel) []string {
	t.Helper()
	var problems []string
	if minutes, ok := strings.CutSuffix(a.For, "m"); !strings.Contains(p.Description,
		"("+a.Annotations["runbook_url"]+")") || ok && !strings.Contains(p.Description, " for "+minutes+" minutes.") {
		problems = append(problems, fmt.Sprintf("panel %q: description %q, want the runbook of %s, %s, and for %q",
			p.Title, p.Description, a.Alert, a.Annotations["runbook_url"], a.For))
	}
	expressions := []string{a.Expr}
	for _, target := range p.Targets {
		expressions = append(expressions, variables.Replace(target.Expr))
	}
	queries := parsePromQL(t, expressions...)
	of := queries[0]
	for _, s := range of.Selectors {
		if !slices.ContainsFunc(queries[1:], func(q query) bool {
			return slices.ContainsFunc(q.Selectors, func(shown selector) bool { return shown.String() == s.String() })
		}) {
			problems = append(problems, fmt.Sprintf("panel %q does not show %s, which the alert %s is about",
				p.Title, s, a.Alert))
		}
	}
	switch steps := p.FieldConfig.Defaults.Thresholds.Steps; {
	case of.Error != "":
		problems = append(problems, fmt.Sprintf("%s: %s", a.Alert, of.Error))
	case of.Above == nil: // absent
		if len(steps) != 2 || steps[0].String() != "red" || steps[1].String() != "green from 1" {
			problems = append(problems, fmt.Sprintf("panel %q: %v, want red below 1, as %s", p.Title, steps, a.Alert))
		}
	case *of.Above == 0: // a step begins at its value
		if !p.reddens(0.001, 1) {
			problems = append(problems, fmt.Sprintf("panel %q: %v, want red above 0, as %s", p.Title, steps, a.Alert))
		}
	case !p.reddens(*of.Above, *of.Above):
		problems = append(problems, fmt.Sprintf("panel %q: %v, want red from %v on, as %s", p.Title, steps,
			*of.Above, a.Alert))
	}
	return problems
}

// TestDashboardSchema checks that the dashboard is valid by Grafana's schema.
func TestDashboardSchema(t *testing.T) {
	t.Parallel()
	cm, _ := dashboards(t, parse(t, render(t, variant{components: []string{"monitoring"}})))
	var problems []string
	runMonitoring(t, "schema", []json.RawMessage{json.RawMessage(cm.Data["dashboard.json"])}, &problems)
	for _, problem := range problems {
		if problem != "" {
			t.Error(problem)
		}
	}
}
