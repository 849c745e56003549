// SPDX-License-Identifier: Apache-2.0

// Command monitoring reads a JSON array and writes one of the same length. `monitoring parse`
// parses PromQL expressions with Prometheus' parser, `monitoring eval` evaluates them on given
// series with its engine, and `monitoring schema` validates dashboards by Grafana's schema. It is
// a separate module, so that these are not dependencies of the kit.
package main

import (
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

type query struct {
	Error     string      `json:",omitempty"`
	Selectors [][]matcher // of each metric in the expression; its name is the label __name__
	By        []string    // the grouping labels
	Above     *float64    // the number at the end of "... > 5"
}

type matcher struct{ Label, Op, Value string }

func main() {
	switch strings.Join(os.Args[1:], " ") {
	case "parse":
		respond(parse)
	case "eval":
		engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute})
		respond(func(e evaluation) result { return evaluate(engine, e) })
	case "schema":
		for _, panel := range []variants.PanelcfgConfig{heatmap.VariantConfig(), stat.VariantConfig(),
			statetimeline.VariantConfig(), timeseries.VariantConfig()} {
			cog.NewRuntime().RegisterPanelcfgVariant(panel)
		}
		respond(validate)
	default:
		log.Fatal("usage: monitoring parse|eval|schema")
	}
}

// validate returns an error for unknown or missing fields of a Grafana dashboard, and for invalid
// values.
func validate(text json.RawMessage) string {
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" { // non-nil for an empty list
		return err.Error()
	}
	if err := d.Validate(); err != nil {
		return err.Error()
	}
	return ""
}

// respond reads a JSON array, and writes the result of each element.
func respond[Q, A any](to func(Q) A) {
	var inputs []Q
	if err := json.NewDecoder(os.Stdin).Decode(&inputs); err != nil {
		log.Fatal(err)
	}
	outputs := make([]A, len(inputs))
	for i, q := range inputs {
		outputs[i] = to(q)
	}
	if err := json.NewEncoder(os.Stdout).Encode(outputs); err != nil {
		log.Fatal(err)
	}
}

func parse(expression string) query {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return query{Error: err.Error()}
	}
	var q query
	if comparison, ok := expr.(*parser.BinaryExpr); ok && comparison.Op == parser.GTR {
		if number, ok := comparison.RHS.(*parser.NumberLiteral); ok {
			q.Above = &number.Val
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			q.By = append(q.By, node.Grouping...)
		case *parser.VectorSelector:
			var selector []matcher
			for _, m := range node.LabelMatchers {
				selector = append(selector, matcher{m.Name, m.Type.String(), m.Value})
			}
			q.Selectors = append(q.Selectors, selector)
		}
		return nil
	})
	return q
}
