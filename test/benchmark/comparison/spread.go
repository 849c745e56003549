// SPDX-License-Identifier: Apache-2.0

// Package comparison computes and formats the results of a benchmark that measures operations with
// several targets in interleaved rounds.
package comparison

import (
	"fmt"
	"slices"
	"time"
)

// MaxSpread is the largest difference between rounds, as a part of the median, at which a median is
// reported. Above it, the report has the least and the greatest value instead.
const MaxSpread = 0.3

// Spread summarizes the values of several rounds.
type Spread struct{ Median, Least, Most float64 }

// SpreadOf returns the spread of at least one value.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// Steady reports whether the rounds agree within MaxSpread.
func (s Spread) Steady() bool { return s.Most-s.Least <= MaxSpread*s.Median }

// Figure returns the median, or the least and the greatest value if the rounds disagree.
func (s Spread) Figure() string {
	if s.Steady() {
		return number(s.Median)
	}
	return number(s.Least) + " to " + number(s.Most)
}

// Ratio returns the median with the least and the greatest value, or only these if the rounds
// disagree.
func (s Spread) Ratio() string {
	if s.Steady() {
		return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Most)
	}
	return fmt.Sprintf("%.2f to %.2f", s.Least, s.Most)
}

// number formats a value with about three digits.
func number(value float64) string {
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

// quantile returns the nearest-rank percentile of at least one duration.
func quantile(values []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
