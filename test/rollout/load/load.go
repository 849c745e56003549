// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	// With 4 workers per kube-apiserver, each of which starts at most one request every 10 ms,
	// the load is steady and two cores can sustain it.
	workers       = 4
	defaultPeriod = 10 * time.Millisecond
	// requestTimeout is far more than any request needs. A request that takes longer has failed.
	requestTimeout = 20 * time.Second
)

// unsent lists the errors of kube-apiserver for a write whose connection the server closes while
// the write is in transit: the transport has consumed the body, which must not be sent again
// (https://issues.k8s.io/135285). The HTTP/2 transport returns the first when the stream is
// refused, and net/http the second when no connection accepted the stream at all
// (https://go.dev/issue/62450). The server has processed neither request.
var unsent = []string{
	"http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] after " +
		"Request.Body was written",
	"net/http: cannot rewind body after connection loss",
}

// UnsentWrite reports whether a request failed as creates may while a server behind a single
// address, such as that of a Service, is replaced.
func UnsentWrite(method string, err error) bool {
	return method == http.MethodPost && slices.ContainsFunc(unsent,
		func(s string) bool { return strings.Contains(err.Error(), s) })
}

// Options configures the load.
type Options struct {
	// Through holds the kube-apiservers, each used with its own connection pool. At least one is
	// required.
	Through []*rest.Config
	// Kind is the kind to create and read. It must be cluster-scoped, with spec.purpose as its
	// only required field. Required.
	Kind schema.GroupVersionKind
	// Prefix is the prefix of the names of all created objects. Required.
	Prefix string
	// Period is the minimum time between the starts of two requests of a worker. The default is
	// 10 ms.
	Period time.Duration
	// Watches is the number of watches to hold open through each kube-apiserver. A watch that
	// ends has failed.
	Watches int
	// Tolerate reports whether the test expects a failed request. Tolerated failures are only
	// counted. If it is nil, none are tolerated.
	Tolerate func(method string, err error) bool
}

// phase counts the requests that started during a step.
type phase struct {
	name                    string
	sent, failed, tolerated atomic.Int64
}

// Load sends requests without retries, and counts the results.
type Load struct {
	t       *testing.T
	options Options
	path    string // of the resource
	current atomic.Pointer[phase]
	stop    context.CancelFunc // of the requests
	done    sync.WaitGroup
	through []through
	watches []*watch
	// closing is set before the watches are stopped. A watch that ends earlier has failed.
	closing   atomic.Bool
	endWatch  context.CancelFunc
	watchDone sync.WaitGroup

	mu        sync.Mutex
	phases    []*phase
	failures  []string
	tolerated map[string]int  // error texts, with their number
	written   map[string]bool // names of objects whose creation was acknowledged
}

// through is a kube-apiserver with its own connection pool.
type through struct {
	name   string
	url    string
	client *http.Client
}

// Start starts the load, in the phase "before".
func Start(t *testing.T, options Options) *Load {
	t.Helper()
	resource, _ := meta.UnsafeGuessKindToResource(options.Kind)
	l := &Load{t: t, options: options, path: "/apis/" + options.Kind.GroupVersion().String() + "/" + resource.Resource,
		written: map[string]bool{}, tolerated: map[string]int{}}
	l.Enter("before")
	requests, stop := context.WithCancel(t.Context())
	watches, end := context.WithCancel(t.Context())
	l.stop, l.endWatch = stop, end
	for n, config := range options.Through {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		l.through = append(l.through, through{fmt.Sprintf("kube-apiserver-%d", n+1), config.Host, client})
	}
	// All watches start at this resource version. They must deliver every later write, through
	// any kube-apiserver.
	version := l.resourceVersion(l.through[0])
	for n, at := range l.through {
		for range options.Watches {
			w := &watch{load: l, at: at, prefix: options.Prefix, seen: map[string]int{}}
			l.watches = append(l.watches, w)
			l.watchDone.Go(func() { w.run(watches, version) })
		}
		for i := range workers {
			l.done.Go(func() { l.work(requests, at, fmt.Sprintf("%s-%d-%d", options.Prefix, n, i)) })
		}
	}
	return l
}

// Enter starts a phase.
func (l *Load) Enter(name string) {
	p := &phase{name: name}
	l.mu.Lock()
	l.phases = append(l.phases, p)
	l.mu.Unlock()
	l.current.Store(p)
}

// Await returns when n requests have been sent in the current phase. It waits as long as there is
// progress, even on a slow machine; only the time limit of the test ends it.
func (l *Load) Await(n int64) {
	l.t.Helper()
	p := l.current.Load()
	for sent := p.sent.Load(); sent < n; sent = p.sent.Load() {
		l.eventually(fmt.Sprintf("%d requests in phase %s", n, p.name), func() error {
			if p.sent.Load() == sent {
				return fmt.Errorf("%d were sent", sent)
			}
			return nil
		})
	}
}

// eventually waits until check returns nil. The time limit of 5 minutes is far more than two busy
// cores need.
func (l *Load) eventually(what string, check func() error) {
	l.t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(l.t.Context(), 50*time.Millisecond, 5*time.Minute, true,
		func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		}); err != nil {
		l.t.Fatalf("wait for %s: %v: %v", what, err, last)
	}
}

func (l *Load) fail(p *phase, format string, args ...any) {
	p.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf("%s %s: ", time.Now().Format("15:04:05.000"), p.name)+fmt.Sprintf(
		format, args...))
}

// End stops the load and checks the counts: no request failed, and every acknowledged write
// exists and arrived once on every watch.
func (l *Load) End() {
	l.t.Helper()
	l.stop()
	l.done.Wait()
	l.report()
	reported := len(l.failures)
	for _, w := range l.watches {
		w.awaitAll()
	}
	l.closing.Store(true)
	l.endWatch()
	l.watchDone.Wait()
	for _, f := range l.failures[reported:] {
		l.t.Error(f)
	}
	for _, w := range l.watches {
		w.check()
	}
	l.readBack()
}

// report prints the counts of each phase, and fails the test for failed requests.
func (l *Load) report() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var total, failed int64
	var out strings.Builder
	for _, p := range l.phases {
		fmt.Fprintf(&out, "%-36s %6d sent %4d failed %4d tolerated\n", p.name, p.sent.Load(), p.failed.Load(),
			p.tolerated.Load())
		total, failed = total+p.sent.Load(), failed+p.failed.Load()
	}
	for err, n := range l.tolerated {
		fmt.Fprintf(&out, "tolerated %d times: %s\n", n, err)
	}
	l.t.Logf("%d requests, %d failed, %d writes acknowledged, %d watches\n%s", total, failed, len(l.written),
		len(l.watches), out.String())
	for _, f := range l.failures[:min(len(l.failures), 20)] {
		l.t.Error(f)
	}
	if len(l.failures) > 20 {
		l.t.Errorf("and %d more", len(l.failures)-20)
	}
}

// Total returns the number of requests sent so far.
func (l *Load) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, p := range l.phases {
		n += p.sent.Load()
	}
	return n
}

// readBack lists all objects through each kube-apiserver and checks that no acknowledged write is
// missing.
func (l *Load) readBack() {
	l.t.Helper()
	for _, at := range l.through {
		found := map[string]bool{}
		for next := ""; ; {
			var page list
			if err := l.get(at, l.path+"?limit=1000&continue="+next, &page); err != nil {
				l.t.Fatal(err)
			}
			for _, item := range page.Items {
				found[item.Metadata.Name] = true
			}
			if next = page.Metadata.Continue; next == "" {
				break
			}
		}
		for name := range l.written {
			if !found[name] {
				l.t.Errorf("%s: %s was acknowledged and does not exist", at.name, name)
			}
		}
	}
}
