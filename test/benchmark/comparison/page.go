// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"fmt"
	"os"
	"path/filepath"
)

const introduction = `# Performance

This page is for developers who choose between an aggregated API and a CRD, and for those who check
a change. ` + "`make benchmark SIZE=%s WRITE=1`" + ` writes it.

![CPU per operation](performance-cpu.svg)

![Duration of operations](performance-duration.svg)

![Resident memory](performance-memory.svg)

`

// WritePage writes performance.md and its plots into a directory.
func (r *Report) WritePage(dir, size string) error {
	for name, text := range map[string]string{
		"performance.md":           fmt.Sprintf(introduction, size) + r.Tables(),
		"performance-cpu.svg":      r.cpuChart().SVG(),
		"performance-duration.svg": r.durationChart().SVG(),
		"performance-memory.svg":   r.memoryChart().SVG(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // documentation
			return fmt.Errorf("write results: %w", err)
		}
	}
	return nil
}

func (r *Report) cpuChart() Chart {
	return r.chart("CPU per operation, ms", []string{"kube-apiserver", "extension API server"}, Round.CPU,
		Round.kubeAPIServerCPU, Round.ServerCPU)
}

func (r *Report) durationChart() Chart {
	return r.chart("Duration of operations, ms", []string{"p50", "p99"}, Round.p99, Round.p50,
		func(round Round) float64 { return round.p99() - round.p50() })
}

// chart returns a chart with a group for each operation and a bar for each target. The text of a
// bar is the figure of total, and its two parts are the medians of the others.
func (r *Report) chart(title string, legend []string, total, first, second func(Round) float64) Chart {
	c := Chart{Title: title, Legend: legend, ScaleGroups: true}
	for _, o := range r.Operations {
		g := Group{Name: o.Name}
		for _, target := range r.Targets {
			text, measured := o.spread(target, total)
			a, _ := o.spread(target, first)
			b, _ := o.spread(target, second)
			g.Bars = append(g.Bars, Bar{Name: target, Text: figure(text, measured), Parts: []float64{a.Median, b.Median}})
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}

func (r *Report) memoryChart() Chart {
	c := Chart{Title: "Resident memory, MiB", Legend: []string{"VmRSS"}}
	for _, m := range r.Memory {
		g := Group{Name: m.Stage}
		for i, kib := range m.Processes {
			mib := float64(kib) / 1024
			g.Bars = append(g.Bars, Bar{Name: r.Processes[i], Text: fmt.Sprintf("%.0f", mib), Parts: []float64{mib}})
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}
