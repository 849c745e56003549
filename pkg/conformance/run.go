// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
)

// runner is the state of a run.
type runner struct {
	target        *Target
	discovered    *discovered
	kubeAPIServer endpoint
	server        endpoint // of target.Server
	bare          endpoint // kube-apiserver, without credentials
	webhooks      *webhooks
	before        map[string]float64 // metrics of the server at the start of the run, by name; for the leak checks
	auditFrom     int64              // size of the audit log at the start of the run
	made          atomic.Int64       // number of created objects
	id            string
	namespace     string // empty if the resource is cluster-scoped
}

// Run runs the checks as subtests. A failed required or recommended check fails the test unless
// it is known to fail. A check that is known to fail but passes also fails the test. Other failed
// checks are reported as skipped.
func Run(t *testing.T, target Target) *Report {
	t.Helper()
	report, err := Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.ID, func(t *testing.T) {
			message := fmt.Sprintf("%s %s\n%s\n%s", result.Level, result.Text, result.Source,
				strings.Join(result.Messages, "\n"))
			switch {
			case result.Unexpected():
				t.Error(message)
			case result.Outcome != Passed:
				t.Skip(message)
			}
		})
	}
	if report.Incomplete != "" {
		t.Errorf("not all checks ran: %s", report.Incomplete)
	}
	for _, left := range report.Left {
		t.Errorf("left behind: %s", left)
	}
	return report
}

// Execute runs the checks and returns the report with their results. The error is a TargetError,
// or an error that prevents all checks. If ctx is done, the run stops after it has deleted the
// objects that it created.
func Execute(ctx context.Context, target Target) (*Report, error) {
	return execute(ctx, target, Checks())
}

func execute(ctx context.Context, target Target, checks []Check) (*Report, error) {
	gvr, err := target.complete(checks)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout,
		fmt.Errorf("the run took longer than %s", target.Timeout))
	defer cancel()
	r := &runner{target: &target, id: rand.String(6)}
	config := rest.CopyConfig(target.Config)
	config.QPS, config.Timeout = -1, 0
	if r.kubeAPIServer, err = newEndpoint(config); err != nil {
		return nil, err
	}
	if target.Server != nil {
		if r.server, err = newEndpoint(target.Server); err != nil {
			return nil, err
		}
	}
	if r.discovered, err = discover(ctx, config, gvr, target.Sample.GetKind()); err != nil {
		return nil, err
	}
	gvr = r.discovered.gvr
	report := &Report{Resource: gvr.Resource + "." + gvr.Version + "." + gvr.Group, Kind: r.discovered.resource.Kind,
		Server: r.discovered.serverVersion, Started: began.UTC().Truncate(time.Second)}
	if target.Sample.GetKind() != report.Kind {
		return nil, fmt.Errorf("the sample has the kind %s, and the resource has the kind %s",
			target.Sample.GetKind(), report.Kind)
	}
	if err := errors.Join(target.checkActions(r.discovered), target.checkPermissions(r.discovered)); err != nil {
		return nil, err
	}
	bare := rest.AnonymousClientConfig(config)
	bare.WrapTransport = config.WrapTransport
	if r.bare, err = newEndpoint(bare); err != nil {
		return nil, err
	}
	err = r.runAll(ctx, checks, report)
	report.Seconds = time.Since(began).Seconds()
	if err != nil && len(report.Left) > 0 {
		err = fmt.Errorf("%w; left behind: %s", err, strings.Join(report.Left, "; "))
	}
	return report, err
}

// newEndpoint returns an endpoint that does not follow redirects, because they would hide the
// response of the server.
func newEndpoint(config *rest.Config) (endpoint, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return endpoint{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{client, strings.TrimSuffix(base.String(), "/")}, nil
}

// runAll runs the checks and deletes all created objects.
func (r *runner) runAll(ctx context.Context, checks []Check, report *Report) error {
	var selected []Check
	for _, c := range checks {
		if r.target.selected(c) {
			selected = append(selected, c)
		}
	}
	setup := &session{r: r, number: len(checks)}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), runCleanupTimeout)
		defer cancel()
		report.Left = append(report.Left, setup.cleanUp(cleanup)...)
		if offers("create", "list")(r.discovered, r.target) == "" {
			report.Left = append(report.Left, r.sweep(cleanup)...)
		}
	}()
	if err := r.prepare(ctx, setup, selected); err != nil {
		return err
	}
	if r.webhooks != nil {
		defer r.webhooks.close()
	}
	r.runEach(ctx, selected, report)
	if err := context.Cause(ctx); err != nil {
		report.Incomplete = err.Error()
	}
	return nil
}

// prepare creates the objects that checks share.
func (r *runner) prepare(ctx context.Context, setup *session, selected []Check) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.target.CheckTimeout,
		fmt.Errorf("the preparation took longer than %s", r.target.CheckTimeout))
	defer cancel()
	setup.ctx = ctx
	if r.target.Direct != nil {
		if messages, _ := setup.runRecovered((*session).handshake); len(messages) > 0 {
			return fmt.Errorf("reach the server's own port: %s", strings.Join(messages, "; "))
		}
	}
	// Report once that no object can be created, for example to an unprivileged user or because
	// the sample is rejected. Checks that only read still run.
	if messages, reason := setup.runRecovered((*session).createFirst); len(messages) > 0 || reason != "" {
		r.discovered.uncreated = "cannot create an object like the sample: " +
			strings.Join(append(messages, reason), "")
	}
	r.namespace = setup.namespace
	if r.namespace == "" && r.discovered.resource.Namespaced {
		r.namespace = metav1.NamespaceDefault // for checks that only read
	}
	if r.target.WebhookAddress != "" {
		var err error
		if r.webhooks, err = newWebhooks(r.target.WebhookAddress); err != nil {
			return fmt.Errorf("listen for webhooks: %w", err)
		}
	}
	if r.target.Server != nil && slices.ContainsFunc(selected, func(c Check) bool { return c.Area() == leaks }) {
		// If the metrics cannot be read, the checks of metrics report it.
		_, _ = setup.runRecovered(func(s *session) { r.before = s.used() })
	}
	if info, err := os.Stat(r.target.AuditLog); err == nil {
		r.auditFrom = info.Size()
	}
	return nil
}

// runEach runs the checks with limited concurrency.
func (r *runner) runEach(ctx context.Context, selected []Check, report *Report) {
	report.Results = make([]Result, len(selected))
	left := make([][]string, len(selected))
	places := make(chan struct{}, r.target.Parallel)
	var group sync.WaitGroup
	var told sync.Mutex
	for i, c := range selected {
		if c.Area() == leaks && i > 0 && selected[i-1].Area() != leaks {
			group.Wait() // leak checks measure what the other checks left in the server
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			report.Results[i], left[i] = r.runOne(ctx, c, i)
			if r.target.Progress != nil {
				told.Lock()
				defer told.Unlock()
				r.target.Progress(report.Results[i], len(selected))
			}
		})
	}
	group.Wait()
	report.Left = append(report.Left, slices.Concat(left...)...)
}

// createFirst creates a namespace, and one object in it.
func (s *session) createFirst() {
	s.apart()
	if !s.r.discovered.resource.Namespaced {
		s.prepare("")
	}
	if offers("create")(s.r.discovered, s.r.target) != "" {
		return
	}
	a := s.do("POST", s.collection(), body(s.object()))
	if a.Code/100 != 2 {
		s.fatalf("got %s", a)
	}
	s.created(a)
}

// runOne runs a check and deletes the objects that it created.
func (r *runner) runOne(ctx context.Context, c Check, number int) (Result, []string) {
	result := Result{ID: c.ID, Level: c.Level, Source: c.Source, Text: c.Text, Outcome: Passed,
		Known: slices.Contains(r.target.Known, c.ID)}
	for _, need := range c.needs {
		if reason := need(r.discovered, r.target); reason != "" {
			result.Outcome, result.Messages = Skipped, []string{reason}
			return result, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		result.Outcome, result.Messages = Skipped, []string{err.Error()}
		return result, nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, r.target.CheckTimeout,
		fmt.Errorf("the check took longer than %s", r.target.CheckTimeout))
	defer cancel()
	s := &session{ctx: limited, r: r, check: c, number: number, namespace: r.namespace}
	messages, reason := s.runRecovered(c.run)
	result.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil && (len(messages) > 0 || reason != ""):
		result.Outcome, result.Messages = Skipped, []string{context.Cause(ctx).Error()}
	case len(messages) > 0:
		result.Outcome, result.Messages, result.Exchanges = Failed, messages, s.exchanges
	case reason != "":
		result.Outcome, result.Messages = Skipped, []string{reason}
	case result.Known:
		result.Messages = []string{"the check is known to fail, but passed"}
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanupTimeout)
	defer cancel()
	return result, s.cleanUp(cleanup)
}

// runRecovered runs a function until it returns or stops early. A reason without messages is the
// reason why the check was skipped.
func (s *session) runRecovered(run func(*session)) (messages []string, reason string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ended:
			reason = p.reason
		default:
			s.errorf("the check panicked: %v\n%s", p, debug.Stack())
		}
		messages = s.messages
	}()
	run(s)
	return s.messages, ""
}
