// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/benchmark/comparison"
)

var (
	sizeName = flag.String("size", "quick", "Size of BenchmarkCompare: smoke, quick (3 minutes) or full (hours).")
	writeTo  = flag.String("write", "", "Directory to which BenchmarkCompare writes its results as a page. Default: none.")
)

// run is one comparison.
type run struct {
	t       testing.TB
	e       *envtest.Environment
	size    size
	targets []*target
	user    *rest.Config
	sender  *through
	number  atomic.Int64 // makes the content of each write unique
	arrived chan int     // the sizes of watch events
	// idle is the CPU time that each process uses in a second without requests. It is subtracted
	// from the results.
	idle   map[process]time.Duration
	report comparison.Report
}

// process is a server whose cost is measured.
type process interface {
	CPUTime() (time.Duration, error)
	VmRSS() (kib int, err error)
	VmHWM() (kib int, err error)
	ResetVmHWM() error
}

// BenchmarkCompare compares a kind of the sample's server with the same kind of a CRD, of
// sample-apiserver, and with ConfigMaps. One control plane serves all of them. In each round, each
// operation is measured with one target after the other, so that other load on the machine affects
// all of them.
func BenchmarkCompare(b *testing.B) {
	s, found := sizes[*sizeName]
	if !found {
		b.Fatalf("-size is %q, must be smoke, quick or full", *sizeName)
	}
	for b.Loop() {
		report := compare(b, s)
		fmt.Print(report.Tables())
		if *writeTo != "" {
			if err := report.WritePage(*writeTo, s.name); err != nil {
				b.Fatal(err)
			}
		}
		for _, o := range report.Operations {
			if ratio, measured := o.Ratio(ours, theirs, comparison.Round.ServerCPU); measured && ratio.Steady() {
				b.ReportMetric(ratio.Median, strings.ReplaceAll(o.Name, " ", "-")+"-x")
			}
		}
	}
}

// TestCompare runs a small comparison. All targets must support all operations, except that
// sample-apiserver and CRDs have no protobuf.
func TestCompare(t *testing.T) {
	report := compare(t, sizes["smoke"])
	for _, o := range report.Operations {
		for _, target := range report.Targets {
			want := sizes["smoke"].rounds
			if strings.HasSuffix(o.Name, "as protobuf") && (target == theirs || target == custom) {
				want = 0
			}
			if got := len(o.Rounds[target]); got != want {
				t.Errorf("%s with %s has %d rounds, want %d", o.Name, target, got, want)
			}
		}
	}
	if dir := t.TempDir(); t.Failed() {
		t.Log(report.Tables())
	} else if err := report.WritePage(dir, "smoke"); err != nil {
		t.Error(err)
	}
}

// compare starts a control plane, and measures all operations in rounds.
func compare(t testing.TB, s size) *comparison.Report {
	t.Helper()
	began := time.Now()
	// Each server stores its objects in an etcd outside of its process.
	e := envtest.New(t, envtest.Options{ExternalEtcd: true, ServerArgs: []string{
		fmt.Sprintf("--max-watches-per-user=%d", s.watchers+100), fmt.Sprintf("--max-watches=%d", s.watchers+1000)}})
	r := &run{t: t, e: e, size: s, targets: newTargets(t, e), idle: map[process]time.Duration{}}
	r.user = e.User(t, "client", rules(r.targets)...)
	r.sender = &through{client: connect(t, r.user), host: r.user.Host}
	r.report = comparison.Report{
		Machine: fmt.Sprintf("Machine: %d cores, %s.", runtime.NumCPU(), runtime.Version()),
		Size: fmt.Sprintf("Size: %s, with %d objects of each kind, %d rounds and %d workers.", s.name, s.objects, s.rounds,
			workers),
		Sample: theirs, Processes: []string{"kube-apiserver", ours, theirs},
	}
	ctx := t.Context()
	for _, step := range []struct {
		stage string
		do    func(context.Context) error
	}{
		{"before the first object", func(context.Context) error { return nil }},
		{fmt.Sprintf("with %d objects of each kind", s.objects), r.populate},
		{"after the operations", r.rounds},
		{fmt.Sprintf("%s after all objects were deleted", s.settle), r.deleteAll},
	} {
		if err := step.do(ctx); err != nil {
			t.Fatal(err)
		}
		if err := r.memory(step.stage); err != nil {
			t.Fatal(err)
		}
		r.progress("%s: %s", time.Since(began).Round(time.Second), step.stage)
	}
	return &r.report
}

func (r *run) progress(format string, args ...any) {
	if r.size.settle > 0 { // it takes long
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// populate creates the objects of all targets.
func (r *run) populate(ctx context.Context) error {
	for _, t := range r.targets {
		r.report.Targets = append(r.report.Targets, t.name)
		if _, _, err := sendAll(ctx, r.size.objects, 4*workers, func(ctx context.Context, i int) (int64, error) {
			return r.sender.send(ctx, t.create(objectName(i), r.number.Add(1)))
		}); err != nil {
			return fmt.Errorf("create objects of %s: %w", t.name, err)
		}
	}
	return nil
}

// warmUp is the least number of operations in the round before the first measured one.
const warmUp = 4

// rounds measures all operations, after a round that warms caches and connections up.
func (r *run) rounds(ctx context.Context) error {
	all := operations(r.size)
	for _, op := range all {
		r.report.Operations = append(r.report.Operations,
			&comparison.Operation{Name: op.name, List: op.list, Rounds: map[string][]comparison.Round{}})
	}
	rejected := map[string]bool{}
	for round := range r.size.rounds + 1 {
		if round == 1 {
			if err := r.measureIdle(ctx); err != nil {
				return err
			}
		}
		for i, op := range all {
			// The order rotates, so that no target always follows the same other one.
			for j := range r.targets {
				t := r.targets[(j+round)%len(r.targets)]
				if rejected[op.name+t.name] {
					continue
				}
				if round == 0 {
					op.count = min(op.count, max(warmUp, op.count/10))
				}
				result, err := r.measure(ctx, op, t)
				if status := (&statusError{}); errors.As(err, &status) && status.code == http.StatusNotAcceptable {
					rejected[op.name+t.name] = true
					continue
				}
				if err != nil {
					return fmt.Errorf("%s with %s: %w", op.name, t.name, err)
				}
				if rounds := r.report.Operations[i].Rounds; round > 0 {
					rounds[t.name] = append(rounds[t.name], result)
				}
			}
		}
		r.progress("round %d of %d", round, r.size.rounds)
	}
	return nil
}

// deleteAll deletes all objects and waits until memory can have been returned.
func (r *run) deleteAll(ctx context.Context) error {
	for _, t := range r.targets {
		if _, _, err := sendAll(ctx, r.size.objects, 4*workers, func(ctx context.Context, i int) (int64, error) {
			return r.sender.send(ctx, t.delete(objectName(i)))
		}); err != nil {
			return fmt.Errorf("delete objects of %s: %w", t.name, err)
		}
	}
	return wait(ctx, r.size.settle)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// processes returns kube-apiserver and the servers, in the order of the report.
func (r *run) processes() []process {
	processes := []process{r.e.KubeAPIServers[0]}
	for _, t := range r.targets {
		if t.server != nil {
			processes = append(processes, t.server)
		}
	}
	return processes
}

func (r *run) memory(stage string) error {
	m := comparison.Memory{Stage: stage}
	for _, p := range r.processes() {
		kib, err := p.VmRSS()
		if err != nil {
			return err
		}
		m.Processes = append(m.Processes, kib)
	}
	r.report.Memory = append(r.report.Memory, m)
	return nil
}

// measure performs an operation with a target.
func (r *run) measure(ctx context.Context, op operation, t *target) (result comparison.Round, err error) {
	if op.before != nil {
		end, err := op.before(ctx, r, t)
		if err != nil {
			return result, err
		}
		defer end()
	}
	serving := process(r.e.KubeAPIServers[0])
	if t.server != nil {
		serving = t.server
	}
	if err := serving.ResetVmHWM(); err != nil {
		return result, err
	}
	retries := r.sender.retries.Load()
	costs, err := r.costs(ctx, func() error {
		result.Took, result.Bytes, err = op.run(ctx, r, t, op.count)
		return err
	})
	if err != nil {
		return result, err
	}
	result.Retries = int(r.sender.retries.Load() - retries)
	result.KubeAPIServer = costs[r.e.KubeAPIServers[0]]
	if t.server != nil {
		result.Server = costs[t.server]
	}
	if result.ResidentKiB, err = serving.VmRSS(); err != nil {
		return result, err
	}
	result.PeakKiB, err = serving.VmHWM()
	return result, err
}

// costs returns the CPU time of each process while do runs, without that of an idle process.
func (r *run) costs(ctx context.Context, do func() error) (map[process]time.Duration, error) {
	before, began := map[process]time.Duration{}, time.Now()
	for _, p := range r.processes() {
		cpu, err := p.CPUTime()
		if err != nil {
			return nil, err
		}
		before[p] = cpu
	}
	if err := do(); err != nil {
		return nil, err
	}
	costs, took := map[process]time.Duration{}, time.Since(began)
	for _, p := range slices.Backward(r.processes()) {
		cpu, err := p.CPUTime()
		if err != nil {
			return nil, err
		}
		idle := time.Duration(took.Seconds() * float64(r.idle[p]))
		costs[p] = max(0, cpu-before[p]-idle)
	}
	return costs, ctx.Err()
}

// measureIdle measures the CPU time of the processes without requests.
func (r *run) measureIdle(ctx context.Context) error {
	period := min(5*time.Second, r.size.settle)
	if period == 0 {
		return nil
	}
	idle, err := r.costs(ctx, func() error { return wait(ctx, period) })
	if err != nil {
		return err
	}
	for i, p := range r.processes() {
		r.idle[p] = time.Duration(float64(idle[p]) / period.Seconds())
		r.progress("%s uses %s of CPU in a second without requests", r.report.Processes[i],
			r.idle[p].Round(time.Microsecond))
	}
	return nil
}
