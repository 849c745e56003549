// SPDX-License-Identifier: Apache-2.0

package comparison

import "time"

// Round is one round of an operation with one target.
type Round struct {
	// Took has the duration of each operation, and so their number.
	Took []time.Duration
	// KubeAPIServer and Server are the CPU times of the processes for all operations. Server is
	// zero for a target that kube-apiserver itself serves.
	KubeAPIServer, Server time.Duration
	// Bytes is the total size of the response bodies.
	Bytes int64
	// ResidentKiB and PeakKiB are the memory of the process that serves the target, after and
	// during the round.
	ResidentKiB, PeakKiB int
	// Retries is the number of requests that were repeated after a response with 429.
	Retries int
}

// per divides by the number of operations.
func (r Round) per(total float64) float64 { return total / float64(len(r.Took)) }

// CPU returns the CPU time of both processes per operation, in milliseconds.
func (r Round) CPU() float64 { return r.per(milliseconds(r.KubeAPIServer + r.Server)) }

// ServerCPU returns the CPU time of the extension API server per operation, in milliseconds.
func (r Round) ServerCPU() float64 { return r.per(milliseconds(r.Server)) }

// CPUPerByte returns the CPU time of both processes per byte of the responses, in nanoseconds.
func (r Round) CPUPerByte() float64 {
	return float64((r.KubeAPIServer + r.Server).Nanoseconds()) / float64(r.Bytes)
}

// kubeAPIServerCPU returns the CPU time of kube-apiserver per operation, in milliseconds.
func (r Round) kubeAPIServerCPU() float64 { return r.per(milliseconds(r.KubeAPIServer)) }

func (r Round) p50() float64         { return milliseconds(quantile(r.Took, 50)) }
func (r Round) p99() float64         { return milliseconds(quantile(r.Took, 99)) }
func (r Round) kibibytes() float64   { return r.per(float64(r.Bytes) / 1024) }
func (r Round) peakMiB() float64     { return float64(r.PeakKiB) / 1024 }
func (r Round) residentMiB() float64 { return float64(r.ResidentKiB) / 1024 }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Operation has the rounds of one operation by target. All targets have equally many rounds, or
// none if the target rejects the operation.
type Operation struct {
	Name string
	// List is true if the cost depends on the number of bytes.
	List   bool
	Rounds map[string][]Round
}

// spread returns the spread of a value over the rounds of a target. It is false without rounds.
func (o *Operation) spread(target string, value func(Round) float64) (Spread, bool) {
	var values []float64
	for _, round := range o.Rounds[target] {
		values = append(values, value(round))
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Ratio returns the spread of the ratios of a value of two targets, each of the same round. It is
// false if a target rejects the operation or the second value is zero.
func (o *Operation) Ratio(target, to string, value func(Round) float64) (Spread, bool) {
	var ratios []float64
	for i, round := range o.Rounds[target] {
		if i >= len(o.Rounds[to]) {
			return Spread{}, false
		}
		divisor := value(o.Rounds[to][i])
		if divisor == 0 {
			return Spread{}, false
		}
		ratios = append(ratios, value(round)/divisor)
	}
	if len(ratios) == 0 {
		return Spread{}, false
	}
	return SpreadOf(ratios), true
}

// Memory is the resident memory of each process, in KiB, at one stage of the run.
type Memory struct {
	Stage     string
	Processes []int
}

// Report is the result of a run.
type Report struct {
	// Machine and Size describe where and how much was measured, in one sentence each.
	Machine, Size string
	// Targets are the names of the targets. The first is compared with the others.
	Targets []string
	// Sample is the target that also has an extension API server.
	Sample     string
	Operations []*Operation
	// Processes are the names of the processes in Memory.
	Processes []string
	Memory    []Memory
}
