// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// healthy returns a check of a health endpoint.
func healthy(name, text string) Check {
	return Check{"health/" + name, Recommended, "https://kubernetes.io/docs/reference/using-api/health-checks/", text,
		[]need{aServer}, func(s *session) {
			a := s.want(s.do("GET", "/"+name, at(s.r.server), accept("*/*")), 200)
			if string(a.Body) != "ok" {
				s.errorf("the response is %.100q, want ok", a.Body)
			}
			if a := s.want(s.do("GET", "/"+name, at(s.r.server), accept("*/*"), query("verbose", "")),
				200); !strings.Contains(string(a.Body), "[+]ping ok") {
				s.errorf("with verbose the response is %.300q, want a line for each check", a.Body)
			}
		}}
}

var healthChecks = []Check{
	healthy("livez", "/livez returns ok, and lists each check with verbose."),
	healthy("readyz", "/readyz returns ok, and lists each check with verbose."),
}

// metrics returns the metrics of the server.
func (s *session) metrics() map[string]*dto.MetricFamily {
	a := s.want(s.do("GET", "/metrics", at(s.r.server), accept("text/plain")), 200)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(a.Body))
	if err != nil {
		s.fatalf("%s: %v", a.request, err)
	}
	return families
}

// metric returns the sum of the metrics of a family that have the labels.
func metric(families map[string]*dto.MetricFamily, name string, labels map[string]string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		matched := 0
		for _, pair := range m.GetLabel() {
			if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
				matched++
			}
		}
		if matched == len(labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// used returns the metrics of resources that the server holds.
func (s *session) used() map[string]float64 {
	families, out := s.metrics(), map[string]float64{}
	for _, name := range []string{goroutines, heap} {
		out[name] = metric(families, name, nil)
	}
	out[watches] = metric(families, watches, s.resourceLabels("WATCH"))
	return out
}

const (
	goroutines = "go_goroutines"
	heap       = "go_memstats_heap_alloc_bytes"
	watches    = "apiserver_longrunning_requests"
	// leaks is the area of the checks that run after all others.
	leaks = "leaks"
	// spareGoroutines allows for connections and other work of the server: a run sends thousands
	// of requests.
	spareGoroutines = 200
	// spareWatches allows for other clients, such as controllers that start to watch the
	// resource.
	spareWatches = 10
	// spareHeap is in bytes. Before a garbage collection, the heap of a Go program is up to twice
	// its live memory.
	spareHeap = 64 << 20
)

// resourceLabels returns the labels of request metrics for the resource.
func (s *session) resourceLabels(verb string) map[string]string {
	return map[string]string{"group": s.r.discovered.gvr.Group, "version": s.r.discovered.gvr.Version,
		"resource": s.r.discovered.gvr.Resource, "verb": verb}
}

var metricChecks = []Check{
	{"metrics/requests", Recommended, measuring,
		"apiserver_request_total counts a request by verb, group, version, resource and code.",
		[]need{verbs("list"), aServer}, func(s *session) {
			labels := s.resourceLabels("LIST")
			labels["code"] = "200"
			before := metric(s.metrics(), "apiserver_request_total", labels)
			s.want(s.list(), 200)
			s.eventually("after a list", func() string {
				if after := metric(s.metrics(), "apiserver_request_total", labels); after <= before {
					return fmt.Sprintf("apiserver_request_total is still %v", after)
				}
				return ""
			})
		}},
	{"metrics/rejected", Recommended, measuring, "apiserver_request_total counts a rejected request.",
		[]need{verbs("create", "get"), aServer}, func(s *session) {
			labels := s.resourceLabels("GET")
			labels["code"] = "404"
			before := metric(s.metrics(), "apiserver_request_total", labels)
			s.expectRefused(s.do("GET", s.path(s.object())), 404)
			s.eventually("after a rejected request", func() string {
				if after := metric(s.metrics(), "apiserver_request_total", labels); after <= before {
					return fmt.Sprintf("apiserver_request_total is still %v", after)
				}
				return ""
			})
		}},
	{"metrics/duration", Recommended, measuring, "apiserver_request_duration_seconds has the resource.",
		[]need{verbs("list"), aServer}, func(s *session) {
			s.want(s.list(), 200)
			labels := s.resourceLabels("LIST")
			s.eventually("after a list", func() string {
				for _, m := range s.metrics()["apiserver_request_duration_seconds"].GetMetric() {
					matched := 0
					for _, pair := range m.GetLabel() {
						if want, ok := labels[pair.GetName()]; ok && want == pair.GetValue() {
							matched++
						}
					}
					if matched == len(labels) && m.GetHistogram().GetSampleCount() > 0 {
						return ""
					}
				}
				return "apiserver_request_duration_seconds has no samples for the resource"
			})
		}},
}

// leak returns a check that a metric does not exceed the allowed value.
func leak(name, metric, text string, allowed func(before float64) float64, needs ...need) Check {
	return Check{"leaks/" + name, Optional, measuring, text, append(needs, aServer), func(s *session) {
		before, ok := s.r.before[metric]
		if !ok {
			s.skipf("the metrics could not be read before the run")
		}
		s.eventually("after the run", func() string {
			// A running process has goroutines and a heap.
			if after := s.used()[metric]; after > allowed(before) || after == 0 && metric != watches {
				return fmt.Sprintf("%s is %v, and was %v", metric, after, before)
			}
			return ""
		})
	}}
}

var leakChecks = []Check{
	leak("watches", watches,
		fmt.Sprintf("After the run, at most %d more watches of the resource are open than before: "+
			"apiserver_longrunning_requests.", spareWatches),
		func(before float64) float64 { return before + spareWatches }, verbs("watch")),
	leak("goroutines", goroutines, fmt.Sprintf("After the run, the server has at most %d more goroutines than before.",
		spareGoroutines),
		func(before float64) float64 { return before + spareGoroutines }),
	leak("memory", heap, fmt.Sprintf(
		"After the run, the heap of the server is at most twice its former size plus %d MiB.", spareHeap>>20),
		func(before float64) float64 { return 2*before + spareHeap }),
}

// auditLog returns the part of the audit log that was written since the run began.
func (r *runner) auditLog() ([]byte, error) {
	log, err := os.Open(r.target.AuditLog)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	if info, err := log.Stat(); err != nil || info.Size() >= r.auditFrom { // otherwise the log was rotated
		if _, err := log.Seek(r.auditFrom, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(log)
}

// audited waits for the audit event of a response with the stage ResponseComplete.
func (s *session) audited(a *response) *auditv1.Event {
	id := a.Header.Get("Audit-Id")
	if id == "" {
		s.fatalf("%s: the response has no header Audit-ID", a.request)
	}
	event := &auditv1.Event{}
	s.eventually("in the audit log", func() string {
		data, err := s.r.auditLog()
		if err != nil {
			return err.Error()
		}
		for line := range bytes.Lines(data) {
			found := &auditv1.Event{}
			if bytes.Contains(line, []byte(id)) && json.Unmarshal(line, found) == nil && string(found.AuditID) == id &&
				found.Stage == auditv1.StageResponseComplete {
				event = found
				return ""
			}
		}
		return "the audit log has no event " + id + " of the stage ResponseComplete"
	})
	return event
}

var auditChecks = []Check{
	{"audit/event", Recommended, auditing,
		"A request creates an event with the Audit-ID of the response, the user, the verb, the object and the code.",
		[]need{verbs("create"), anAuditLog}, func(s *session) {
			a := s.do("POST", s.collection(), body(s.object()))
			obj := s.created(s.want(a, 201))
			event := s.audited(a)
			ref := event.ObjectRef
			if event.Verb != "create" || event.User.Username == "" || event.ResponseStatus == nil ||
				event.ResponseStatus.Code != 201 || ref == nil ||
				ref.Resource != s.r.discovered.gvr.Resource || ref.APIGroup != s.r.discovered.gvr.Group ||
				ref.Namespace != obj.GetNamespace() || ref.Name != obj.GetName() {
				s.errorf("the event is %s by %q of %+v with %+v", event.Verb, event.User.Username, ref,
					event.ResponseStatus)
			}
		}},
	{"audit/rejected", Recommended, auditing, "A rejected request creates an event with the code.",
		[]need{verbs("create"), anAuditLog}, func(s *session) {
			obj := s.object()
			obj.SetName(s.create().GetName())
			a := s.do("POST", s.collection(), body(obj))
			s.expectRefused(a, 409)
			if event := s.audited(a); event.ResponseStatus == nil || int(event.ResponseStatus.Code) != a.Code {
				s.errorf("the status of the event is %+v, want the code %d", event.ResponseStatus, a.Code)
			}
		}},
	{"audit/user", Required, auditing, "The event of an impersonated request has the impersonated user.",
		[]need{verbs("list"), anAuditLog}, func(s *session) {
			user := s.unprivilegedUser()
			s.grant(user, s.rule(s.r.discovered.gvr.Resource, "list"))
			var a *response
			s.eventually("with the permission to list", func() string {
				if a = s.list(as(user)); a.Code != http.StatusOK {
					return "got " + a.String()
				}
				return ""
			})
			// kube-apiserver records both users. A server behind it only knows the impersonated
			// one.
			if event := s.audited(a); event.User.Username != user &&
				(event.ImpersonatedUser == nil || event.ImpersonatedUser.Username != user) {
				s.errorf("the event is by %q for %+v, want %s", event.User.Username, event.ImpersonatedUser, user)
			}
		}},
	{"audit/policy", Recommended, policies, "A ValidatingAdmissionPolicy adds its annotation to the event.",
		[]need{verbs("create"), anAuditLog}, func(s *session) {
			s.policyWith([]any{"CREATE"}, "true", "Deny",
				map[string]any{"auditAnnotations": []any{map[string]any{"key": "seen",
					"valueExpression": "'by the check'"}}})
			s.eventually("with the policy", func() string {
				for _, value := range s.audited(s.want(s.do("POST", s.collection(), body(s.policed()),
					query("dryRun", "All")), 201)).Annotations {
					if value == "by the check" {
						return ""
					}
				}
				return "the event has no annotation of the policy"
			})
		}},
}
