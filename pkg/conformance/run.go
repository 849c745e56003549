// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
)

// runner is a run at work.
type runner struct {
	target        *Target
	facts         *facts
	kubeAPIServer endpoint
	server        endpoint // of target.Server
	bare          endpoint // kube-apiserver, without credentials
	webhooks      *webhooks
	before        map[string]float64 // what the server used when the run began, by metric
	id            string
	namespace     string // empty if the resource is in none
}

// Run runs the checks as subtests. A failed check that is required or recommended fails the test; an optional one is only logged.
func Run(t *testing.T, target Target) *Report {
	t.Helper()
	report, err := Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.ID, func(t *testing.T) {
			message := fmt.Sprintf("%s %s\n%s\n%s", result.Level, result.Text, result.Source, strings.Join(result.Messages, "\n"))
			switch {
			case result.Outcome == Skipped:
				t.Skip(strings.Join(result.Messages, "; "))
			case result.Outcome == Failed && result.Level == Optional:
				t.Skip(message)
			case result.Outcome == Failed:
				t.Error(message)
			}
		})
	}
	for _, left := range report.Left {
		t.Errorf("left behind: %s", left)
	}
	return report
}

// Execute runs the checks. The error is a TargetError, or about what no check can do without; what checks found is in the report. The run
// ends when ctx does, after it deleted what it made.
func Execute(ctx context.Context, target Target) (*Report, error) {
	return execute(ctx, target, Checks())
}

func execute(ctx context.Context, target Target, checks []Check) (*Report, error) {
	target.complete()
	gvr, err := target.validate(checks)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout, fmt.Errorf("the run took longer than %s", target.Timeout))
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
	if r.facts, err = discover(ctx, config, gvr, target.Sample.GetKind()); err != nil {
		return nil, err
	}
	gvr = r.facts.gvr
	report := &Report{Resource: gvr.Resource + "." + gvr.Version + "." + gvr.Group, Kind: r.facts.resource.Kind, Server: r.facts.serverVersion, Started: began.UTC().Truncate(time.Second)}
	if target.Sample.GetKind() != report.Kind {
		return nil, fmt.Errorf("the sample is of the kind %s, and the resource has objects of the kind %s", target.Sample.GetKind(), report.Kind)
	}
	bare := rest.AnonymousClientConfig(config)
	bare.WrapTransport = config.WrapTransport
	if r.bare, err = newEndpoint(bare); err != nil {
		return nil, err
	}
	err = r.runAll(ctx, checks, report)
	report.Seconds = time.Since(began).Seconds()
	return report, err
}

// newEndpoint does not follow redirects, which would hide what the server answers.
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

// runAll runs the checks, some at a time, and deletes what was made.
func (r *runner) runAll(ctx context.Context, checks []Check, report *Report) error {
	setup := &session{ctx: ctx, r: r, number: len(checks)}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), runCleanupTimeout)
		defer cancel()
		report.Left = append(report.Left, setup.cleanUp(cleanup)...)
	}()
	if r.facts.resource.Namespaced {
		if messages, _ := setup.guarded((*session).apart); len(messages) > 0 {
			return fmt.Errorf("create a namespace for the objects: %s", strings.Join(messages, "; "))
		}
		r.namespace = setup.namespace
	}
	if verbs("create")(r.facts, r.target) == "" {
		if messages, _ := setup.guarded((*session).tryOut); len(messages) > 0 {
			return fmt.Errorf("create an object like the sample: %s", strings.Join(messages, "; "))
		}
	}
	if r.target.WebhookAddress != "" {
		var err error
		if r.webhooks, err = newWebhooks(r.target.WebhookAddress); err != nil {
			return fmt.Errorf("listen for webhooks: %w", err)
		}
		defer r.webhooks.close()
	}
	if r.target.Server != nil {
		if messages, _ := setup.guarded(func(s *session) { r.before = s.used() }); len(messages) > 0 {
			return fmt.Errorf("read the metrics of the server: %s", strings.Join(messages, "; "))
		}
	}
	var selected []Check
	for _, c := range checks {
		if r.target.selected(c) {
			selected = append(selected, c)
		}
	}
	report.Results = make([]Result, len(selected))
	left := make([][]string, len(selected))
	places := make(chan struct{}, r.target.Parallel)
	var group sync.WaitGroup
	var told sync.Mutex
	for i, c := range selected {
		if c.Area() == leaks && i > 0 && selected[i-1].Area() != leaks {
			group.Wait() // these are about what the others left in the server
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
	for _, l := range left {
		report.Left = append(report.Left, l...)
	}
	return nil
}

// tryOut makes one object, so that a sample that the server refuses is said once and not by each check.
func (s *session) tryOut() {
	a := s.do("POST", s.collection(), body(s.object()))
	if a.Code/100 != 2 {
		s.fatalf("got %s", a)
	}
	s.created(a)
}

// runOne runs a check, and deletes what it made.
func (r *runner) runOne(ctx context.Context, c Check, number int) (Result, []string) {
	result := Result{ID: c.ID, Level: c.Level, Source: c.Source, Text: c.Text, Outcome: Passed}
	for _, need := range c.needs {
		if reason := need(r.facts, r.target); reason != "" {
			result.Outcome, result.Messages = Skipped, []string{reason}
			return result, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		result.Outcome, result.Messages = Skipped, []string{err.Error()}
		return result, nil
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, r.target.CheckTimeout, fmt.Errorf("the check took longer than %s", r.target.CheckTimeout))
	defer cancel()
	s := &session{ctx: limited, r: r, check: c, number: number, namespace: r.namespace}
	messages, reason := s.guarded(c.run)
	result.Seconds = time.Since(began).Seconds()
	switch {
	case len(messages) > 0:
		result.Outcome, result.Messages, result.Exchanges = Failed, messages, s.exchanges
	case reason != "":
		result.Outcome, result.Messages = Skipped, []string{reason}
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanupTimeout)
	defer cancel()
	return result, s.cleanUp(cleanup)
}

// guarded runs a function of checks to its end, or until it gives up. A reason without messages is why it was skipped.
func (s *session) guarded(run func(*session)) (messages []string, reason string) {
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

// cleanUp ends watches and deletes what was made, without finalizers if need be. It returns what is left.
func (s *session) cleanUp(ctx context.Context) (left []string) {
	for _, w := range s.watches {
		w.cancel()
	}
	sweep := &session{ctx: ctx, r: s.r, check: s.check, number: s.number}
	try := func(path string, remove func(*session)) {
		if messages, _ := sweep.guarded(remove); len(messages) > 0 {
			left = append(left, path+": "+strings.Join(messages, "; "))
			sweep.messages = nil
		}
	}
	// Objects in them go with the namespaces, if only their requests hang.
	for _, name := range s.namespaces {
		path := "/api/v1/namespaces/" + name
		try(path, func(s *session) { s.want(s.do("DELETE", path), 200, 202, 404, 409) })
	}
	for _, path := range s.objects {
		try(path, func(s *session) { s.remove(path) })
	}
	return left
}

// remove deletes an object, if it is there.
func (s *session) remove(path string) {
	a := s.do("DELETE", path, query("propagationPolicy", "Background"))
	if a.Code == 404 {
		return
	}
	s.want(a, 200, 202, 409)
	if a.Code == 409 || len(a.object().GetFinalizers()) > 0 {
		s.want(s.do("PATCH", path, mergePatch(metadata(map[string]any{"finalizers": nil}))), 200, 404)
	}
}
