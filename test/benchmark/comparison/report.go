// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"fmt"
	"strconv"
	"strings"
)

// absent is the cell of a target that rejects an operation.
const absent = "-"

// Tables returns the results as Markdown.
func (r *Report) Tables() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n", r.Machine, r.Size)
	fmt.Fprintf(&b, "Cells have the median of the rounds. If the rounds differ by more than %.0f %% of the median,\n"+
		"they have the least and the greatest value. `%s` means that the target rejects the operation.\n\n", MaxSpread*100, absent)
	r.section(&b, "CPU per operation, ms: kube-apiserver + extension API server", r.cpu)
	r.ratios(&b)
	r.section(&b, "Duration, ms: p50, p99", r.pair(Round.p50, Round.p99))
	r.section(&b, "Memory of the server during the operation, MiB: resident afterwards, peak",
		r.pair(Round.residentMiB, Round.peakMiB))
	r.section(&b, "Response bodies per operation, KiB", func(o *Operation, target string) string {
		return figure(o.spread(target, Round.kibibytes))
	})
	r.retries(&b)
	r.memory(&b)
	return b.String()
}

// section writes a table with a row for each operation and a column for each target.
func (r *Report) section(b *strings.Builder, title string, cell func(o *Operation, target string) string) {
	fmt.Fprintf(b, "## %s\n\n", title)
	row(b, append([]string{"operation"}, r.Targets...))
	rule(b, len(r.Targets)+1)
	for _, o := range r.Operations {
		cells := []string{o.Name}
		for _, target := range r.Targets {
			cells = append(cells, cell(o, target))
		}
		row(b, cells)
	}
	b.WriteString("\n")
}

func (r *Report) cpu(o *Operation, target string) string {
	total, measured := o.spread(target, Round.CPU)
	server, _ := o.spread(target, Round.ServerCPU)
	if !measured || !total.Steady() || server.Most == 0 {
		return figure(total, measured)
	}
	kubeAPIServer, _ := o.spread(target, Round.kubeAPIServerCPU)
	return number(kubeAPIServer.Median) + " + " + number(server.Median)
}

func (r *Report) pair(first, second func(Round) float64) func(*Operation, string) string {
	return func(o *Operation, target string) string {
		a, measured := o.spread(target, first)
		if !measured {
			return absent
		}
		c, _ := o.spread(target, second)
		return a.Figure() + ", " + c.Figure()
	}
}

// ratios writes the ratios of the first target to the others.
func (r *Report) ratios(b *strings.Builder) {
	first := r.Targets[0]
	fmt.Fprintf(b, "## CPU of %s, as a ratio\n\n"+
		"Each ratio is of two measurements in the same round: the median, and in brackets the least and the\n"+
		"greatest ratio.\n\n", first)
	header := []string{"operation", "server alone to that of " + r.Sample}
	for _, target := range r.Targets[1:] {
		header = append(header, "to "+target)
	}
	for _, target := range r.Targets[1:] {
		header = append(header, "per byte to "+target)
	}
	row(b, header)
	rule(b, len(header))
	for _, o := range r.Operations {
		cells := []string{o.Name, ratio(o.Ratio(first, r.Sample, Round.ServerCPU))}
		for _, target := range r.Targets[1:] {
			cells = append(cells, ratio(o.Ratio(first, target, Round.CPU)))
		}
		for _, target := range r.Targets[1:] {
			cell := ""
			if o.List {
				cell = ratio(o.Ratio(first, target, Round.CPUPerByte))
			}
			cells = append(cells, cell)
		}
		row(b, cells)
	}
	b.WriteString("\n")
}

// retries writes a table of the requests that were repeated, if there are any.
func (r *Report) retries(b *strings.Builder) {
	total := func(o *Operation, target string) (sum int) {
		for _, round := range o.Rounds[target] {
			sum += round.Retries
		}
		return sum
	}
	for _, o := range r.Operations {
		for _, target := range r.Targets {
			if total(o, target) > 0 {
				r.section(b, "Requests that were repeated after a response with 429, all rounds",
					func(o *Operation, target string) string { return strconv.Itoa(total(o, target)) })
				return
			}
		}
	}
}

func (r *Report) memory(b *strings.Builder) {
	b.WriteString("## Resident memory, MiB\n\n")
	row(b, append([]string{"stage"}, r.Processes...))
	rule(b, len(r.Processes)+1)
	for _, m := range r.Memory {
		cells := []string{m.Stage}
		for _, kib := range m.Processes {
			cells = append(cells, fmt.Sprintf("%.0f", float64(kib)/1024))
		}
		row(b, cells)
	}
}

func figure(s Spread, measured bool) string {
	if !measured {
		return absent
	}
	return s.Figure()
}

func ratio(s Spread, measured bool) string {
	if !measured {
		return absent
	}
	return s.Ratio()
}

func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func rule(b *strings.Builder, columns int) {
	b.WriteString("|" + strings.Repeat("---|", columns) + "\n")
}
