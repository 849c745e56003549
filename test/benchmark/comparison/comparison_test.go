// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSpread checks the median and the texts of steady and of unsteady values.
func TestSpread(t *testing.T) {
	for name, tc := range map[string]struct {
		values        []float64
		want          Spread
		figure, ratio string
	}{
		"one value": {[]float64{2}, Spread{2, 2, 2}, "2.00", "2.00 (2.00 to 2.00)"},
		"odd":       {[]float64{11, 10, 12}, Spread{11, 10, 12}, "11.0", "11.00 (10.00 to 12.00)"},
		"even":      {[]float64{120, 100, 110, 110}, Spread{110, 100, 120}, "110", "110.00 (100.00 to 120.00)"},
		"at limit":  {[]float64{10, 13, 10}, Spread{10, 10, 13}, "10.0", "10.00 (10.00 to 13.00)"},
		"unsteady":  {[]float64{1, 1.4, 1.1}, Spread{1.1, 1, 1.4}, "1.00 to 1.40", "1.00 to 1.40"},
		"zero":      {[]float64{0, 0}, Spread{}, "0.00", "0.00 (0.00 to 0.00)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := SpreadOf(tc.values)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("SpreadOf (-want +got):\n%s", diff)
			}
			if got.Figure() != tc.figure || got.Ratio() != tc.ratio {
				t.Errorf("got %q and %q, want %q and %q", got.Figure(), got.Ratio(), tc.figure, tc.ratio)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	values := []time.Duration{5, 1, 4, 2, 3}
	for percent, want := range map[int]time.Duration{0: 1, 50: 3, 99: 5, 100: 5} {
		if got := quantile(values, percent); got != want {
			t.Errorf("quantile %d: got %d, want %d", percent, got, want)
		}
	}
}

// round returns a round of two operations.
func round(kubeAPIServer, server time.Duration, bytes int64) Round {
	return Round{Took: []time.Duration{time.Millisecond, 3 * time.Millisecond}, KubeAPIServer: kubeAPIServer,
		Server: server, Bytes: bytes, ResidentKiB: 2048, PeakKiB: 3072}
}

func report() *Report {
	const ms = time.Millisecond
	return &Report{
		Machine: "Machine: 2 cores.", Size: "Size: small.", Targets: []string{"ours", "sample", "CRD"}, Sample: "sample",
		Operations: []*Operation{
			{Name: "get", Rounds: map[string][]Round{
				"ours":   {round(2*ms, 4*ms, 2048), round(2*ms, 4*ms, 2048)},
				"sample": {round(2*ms, 8*ms, 2048), round(2*ms, 16*ms, 2048)},
				"CRD":    {round(12*ms, 0, 4096), round(12*ms, 0, 4096)},
			}},
			{Name: "list <all>", List: true, Rounds: map[string][]Round{
				"ours": {round(2*ms, 4*ms, 2048), round(2*ms, 4*ms, 2048)},
				"CRD":  {round(12*ms, 0, 4096), round(12*ms, 0, 4096)},
			}},
		},
		Processes: []string{"kube-apiserver", "ours", "sample"},
		Memory:    []Memory{{"idle", []int{307200, 92160, 71680}}},
	}
}

// TestTables checks a steady cell, an unsteady one, a rejected operation and ratios.
func TestTables(t *testing.T) {
	got := report().Tables()
	for _, want := range []string{
		"| get | 1.00 + 2.00 | 5.00 to 9.00 | 6.00 |\n",
		"| list <all> | 1.00 + 2.00 | - | 6.00 |\n",
		"| get | 0.25 to 0.50 | 0.33 to 0.60 | 0.50 (0.50 to 0.50) |  |  |\n",
		"| list <all> | - | - | 0.50 (0.50 to 0.50) | - | 1.00 (1.00 to 1.00) |\n",
		"| get | 1.00, 3.00 | 1.00, 3.00 | 1.00, 3.00 |\n",
		"| get | 2.00, 3.00 | 2.00, 3.00 | 2.00, 3.00 |\n",
		"| get | 1.00 | 1.00 | 2.00 |\n",
		"| idle | 300 | 90 | 70 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant the row %s", got, want)
		}
	}
}

// TestRetries: the report shows repeated requests, and has no table without any.
func TestRetries(t *testing.T) {
	const title = "Requests that were repeated"
	r := report()
	if strings.Contains(r.Tables(), title) {
		t.Error("got a table of repeated requests, want none")
	}
	r.Operations[0].Rounds["sample"][1].Retries = 7
	if got := r.Tables(); !strings.Contains(got, title) || !strings.Contains(got, "| get | 0 | 7 | 0 |\n") {
		t.Errorf("got\n%s\nwant 7 repeated requests", got)
	}
}

// TestRatioOfUnequalRounds: a target without a round has no ratio, instead of one of other rounds.
func TestRatioOfUnequalRounds(t *testing.T) {
	o := report().Operations[0]
	o.Rounds["CRD"] = o.Rounds["CRD"][:1]
	if ratio, measured := o.Ratio("ours", "CRD", Round.CPU); measured {
		t.Errorf("got %v, want none", ratio)
	}
}

// TestWritePage checks that the plots are well-formed XML and that the page links to them.
func TestWritePage(t *testing.T) {
	dir := t.TempDir()
	if err := report().WritePage(dir, "small"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	plots, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(plots) != 3 {
		t.Fatalf("got %v and %v, want 3 plots", plots, err)
	}
	for _, plot := range plots {
		if !strings.Contains(string(page), "]("+filepath.Base(plot)+")") {
			t.Errorf("the page has no %s", filepath.Base(plot))
		}
		f, err := os.Open(plot)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		decoder := xml.NewDecoder(f)
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", filepath.Base(plot), err)
		}
	}
}

// TestBars checks that the longest bar of each group has the full width if groups are scaled.
func TestBars(t *testing.T) {
	c := Chart{Legend: []string{"a", "b"}, ScaleGroups: true, Groups: []Group{
		{Name: "small", Bars: []Bar{{Parts: []float64{1, 1}}, {Parts: []float64{1}}}},
		{Name: "large", Bars: []Bar{{Parts: []float64{100}}}},
		{Name: "none", Bars: []Bar{{Parts: []float64{0}}}},
	}}
	if got := strings.Count(c.SVG(), `width="220.0"`); got != 3 {
		t.Errorf("got %d halves of the width, want 3", got)
	}
	if got := strings.Count(c.SVG(), `width="440.0"`); got != 1 {
		t.Errorf("got %d bars of the full width, want 1", got)
	}
}
