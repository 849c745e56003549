// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// evaluation is an expression with the series in storage, in the notation of promtool's unit
// tests: a sample a minute, `up{job="x"} 1 1 0`. The first sample is at time 0.
type evaluation struct {
	Expr   string
	Series []string
	Minute int // when it is evaluated
}

type result struct {
	Error  string              `json:",omitempty"`
	Labels []map[string]string // of each sample of the result
}

// evaluate evaluates the expression at that minute with Prometheus' engine.
func evaluate(engine *promql.Engine, e evaluation) result {
	var series []storage.Series
	for _, text := range e.Series {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		if err != nil {
			return result{Error: fmt.Sprintf("%s: %v", text, err)}
		}
		var points []promql.FPoint
		for i, v := range values {
			if !v.Omitted {
				points = append(points, promql.FPoint{T: (time.Duration(i) * time.Minute).Milliseconds(), F: v.Value})
			}
		}
		series = append(series, promql.NewStorageSeries(promql.Series{Metric: metric, Floats: points}))
	}
	at := time.Unix(int64(e.Minute)*60, 0)
	query, err := engine.NewInstantQuery(context.Background(), memory(series), nil, e.Expr, at)
	if err != nil {
		return result{Error: err.Error()}
	}
	defer query.Close()
	executed := query.Exec(context.Background())
	vector, err := executed.Vector()
	if err != nil {
		return result{Error: err.Error()}
	}
	var r result
	for _, sample := range vector {
		r.Labels = append(r.Labels, sample.Metric.Map())
	}
	return r
}

// memory is a storage of series.
type memory []storage.Series

func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return querier{storage.NoopQuerier(), m}, nil
}

type querier struct {
	storage.Querier
	series []storage.Series
}

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	var found seriesSet
	for _, s := range q.series {
		matches := true
		for _, m := range matchers {
			matches = matches && m.Matches(s.Labels().Get(m.Name))
		}
		if matches {
			found.rest = append(found.rest, s)
		}
	}
	return &found
}

type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *seriesSet) At() storage.Series              { return s.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
