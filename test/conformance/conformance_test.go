// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"example.com/extension-apiserver/internal/scripttest"
	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// targets returns the targets of testdata/targets.yaml.
func targets(t *testing.T, config *rest.Config) []conformance.Target {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "targets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []conformance.Target
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		sample := &unstructured.Unstructured{}
		if err := decoder.Decode(&sample.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		target := conformance.Target{Config: config, Resource: sample.GetName(), Sample: sample}
		for name, patch := range map[string]any{"change": &target.Change, "invalid": &target.Invalid,
			"status": &target.Status, "actions": &target.Actions} {
			if text, ok := sample.GetAnnotations()[name]; ok {
				if err := json.Unmarshal([]byte(text), patch); err != nil {
					t.Fatalf("%s: the annotation %s: %v", target.Resource, name, err)
				}
			}
		}
		unstructured.RemoveNestedField(sample.Object, "metadata") // some reviews reject any
		out = append(out, target)
	}
}

// expectation is an entry of testdata/expected.yaml.
type expectation struct {
	Checks  []string `json:"checks"`
	Targets []string `json:"targets"`
	Because string   `json:"because"`
}

func expectations(t *testing.T, file string) []expectation {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var out []expectation
	if err := sigsyaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// complete sets the fields of a target that the checks need besides a client, for the server of
// the target's resource.
func complete(t *testing.T, e *envtest.Environment, target *conformance.Target, other *envtest.Server, logs auditLogs) {
	t.Helper()
	known, err := e.ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	target.Config, target.Kubectl, target.WebhookAddress, target.AllowDisruptive = known.Config, known.Kubectl,
		known.WebhookAddress, true
	switch _, group, _ := strings.Cut(target.Resource, "."); {
	case strings.HasSuffix(group, "workshop.example.com"):
		target.Server, target.AuditLog = known.Server, logs.server
	case strings.HasSuffix(group, "wardle.example.com"):
		target.Server = other.ConfigAs(e, known.Config) // k8s.io/sample-apiserver writes no audit log
	default:
		target.Server, target.AuditLog = known.Config, logs.kubeAPIServer
	}
}

// auditLogs holds the paths of the audit logs of kube-apiserver and the sample's server.
type auditLogs struct{ kubeAPIServer, server string }

// audited returns options that make the servers write audit logs, and the paths of the logs.
func audited(t *testing.T) (envtest.Options, auditLogs) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy,
		[]byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	logs := auditLogs{filepath.Join(dir, "kube-apiserver.log"), filepath.Join(dir, "server.log")}
	flags := func(log string) []string { return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log} }
	return envtest.Options{KubeAPIServerArgs: flags(logs.kubeAPIServer), ServerArgs: flags(logs.server)}, logs
}

// TestCalibration runs all checks against each target, and checks that exactly those fail that
// testdata/expected.yaml lists.
func TestCalibration(t *testing.T) {
	options, logs := audited(t)
	e := envtest.New(t, options)
	other, err := e.StartSampleAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	crd, err := filepath.Abs(filepath.Join("testdata", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) error {
		stdout, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e, args...)
		if err != nil {
			err = fmt.Errorf("kubectl %s: %w\n%s%s", args, err, stdout, stderr)
		}
		return err
	}
	if err := kubectl("apply", "-f", crd); err != nil {
		t.Fatal(err)
	}
	// kubectl wait fails while the conditions are null.
	e.Eventually(t, "the CRD to be established", time.Minute, func(context.Context) error {
		return kubectl("wait", "--for=condition=Established", "-f", crd)
	})
	for _, target := range targets(t, nil) {
		t.Run(target.Resource, func(t *testing.T) {
			if builtIn := !strings.Contains(target.Resource, "example.com"); testing.Short() && builtIn {
				t.Skip("skipped in short mode: built-in kinds change with Kubernetes, not with the kit")
			}
			complete(t, e, &target, other, logs)
			created := &creations{}
			target.Config = rest.CopyConfig(target.Config)
			target.Config.Wrap(created.count)
			report, err := conformance.Execute(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.0f s, %d objects: %d passed, %d failed, %d skipped", report.Seconds, created.n.Load(),
				report.Count("", conformance.Passed), report.Count("", conformance.Failed),
				report.Count("", conformance.Skipped))
			asExpected(t, report, target.Resource, expectations(t, "expected.yaml"))
			if n := created.n.Load(); report.Seconds > 180 || n == 0 || n > 5000 {
				t.Errorf("the run took %.0f s and created %d objects, want at most 3 minutes and 5,000", report.Seconds, n)
			}
		})
	}
}

// creations counts the created objects, dry runs included.
type creations struct{ n atomic.Int64 }

func (c *creations) count(next http.RoundTripper) http.RoundTripper { return counting{c, next} }

type counting struct {
	*creations
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusCreated {
		c.n.Add(1)
	}
	return resp, err
}

// TestWithoutWatchCache checks that reads have the same guarantees when the server reads from
// etcd instead of a watch cache.
func TestWithoutWatchCache(t *testing.T) {
	e := envtest.New(t, envtest.Options{ExternalEtcd: true, ServerArgs: []string{"--watch-cache=false"}})
	target := one(t, nil, "widgets.v1.workshop.example.com")
	complete(t, e, &target, nil, auditLogs{})
	target.Only = []string{"get", "list", "selectors", "pages", "watch", "watch-list"}
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	asExpected(t, report, target.Resource, append(expectations(t, "expected.yaml"), expectation{
		Checks: []string{"watch/bookmark"}, Targets: []string{target.Resource},
		Because: "etcd sends no bookmarks",
	}))
}

// asExpected fails the test for each check whose outcome differs from the expectation for the
// target.
func asExpected(t *testing.T, report *conformance.Report, target string, entries []expectation) {
	t.Helper()
	var expected, got []string
	for _, entry := range entries {
		for _, id := range entry.Checks {
			if slices.Contains(entry.Targets, target) && slices.ContainsFunc(report.Results,
				func(r conformance.Result) bool { return r.ID == id }) {
				expected = append(expected, id)
			}
		}
	}
	for _, result := range report.Failed() {
		got = append(got, result.ID)
		if !slices.Contains(expected, result.ID) {
			t.Errorf("%s (%s) fails: %s", result.ID, result.Level, strings.Join(result.Messages, "; "))
		}
	}
	for _, id := range expected {
		if !slices.Contains(got, id) {
			t.Errorf("%s passes or is skipped, want that it fails", id)
		}
	}
	for _, left := range report.Left {
		t.Errorf("left behind: %s", left)
	}
}

// TestDocs checks that the tables of docs/reference/conformance.md match the checks and the
// expectations.
func TestDocs(t *testing.T) {
	var text strings.Builder
	areas, counts := []string{}, map[string]map[conformance.Level]int{}
	for _, check := range conformance.Checks() {
		if counts[check.Area()] == nil {
			areas = append(areas, check.Area())
			counts[check.Area()] = map[conformance.Level]int{}
		}
		counts[check.Area()][check.Level]++
	}
	total := map[conformance.Level]int{}
	text.WriteString("| area | required | recommended | optional |\n|---|---|---|---|\n")
	for _, area := range areas {
		c := counts[area]
		fmt.Fprintf(&text, "| %s | %d | %d | %d |\n", area, c[conformance.Required], c[conformance.Recommended],
			c[conformance.Optional])
		for level, n := range c {
			total[level] += n
		}
	}
	fmt.Fprintf(&text, "| **%d in all** | %d | %d | %d |\n", len(conformance.Checks()), total[conformance.Required],
		total[conformance.Recommended], total[conformance.Optional])
	text.WriteString("\n| fails | which checks | why |\n|---|---|---|\n")
	for _, entry := range expectations(t, "expected.yaml") {
		var resources []string
		for _, target := range entry.Targets {
			resource, _, _ := strings.Cut(target, ".")
			resources = append(resources, resource)
		}
		fmt.Fprintf(&text, "| %s | `%s` | %s |\n", strings.Join(resources, ", "), strings.Join(entry.Checks, "`, `"),
			entry.Because)
	}
	table(t, filepath.Join("docs", "reference", "conformance.md"), text.String())

	text.Reset()
	text.WriteString("| check | expected behavior | the kit's server | k8s.io/sample-apiserver |\n|---|---|---|---|\n")
	entries := expectations(t, "expected-security.yaml")
	for _, check := range conformance.SecurityChecks() {
		fmt.Fprintf(&text, "| [%s](%s) | %s |", check.ID, check.Source, check.Text)
		for _, target := range []string{"widgets.v1.workshop.example.com", "flunders.v1alpha1.wardle.example.com"} {
			summary := "passes"
			for _, entry := range entries {
				if slices.Contains(entry.Targets, target) && slices.Contains(entry.Checks, check.ID) {
					summary = "fails: " + entry.Because
				}
			}
			fmt.Fprintf(&text, " %s |", summary)
		}
		text.WriteString("\n")
	}
	table(t, "SECURITY.md", text.String())
	table(t, filepath.Join("docs", "build", "kinds-without-storage.md"), comparison(t))
}

// comparison returns a table of the outcomes of the checks of existing objects.
func comparison(t *testing.T) string {
	t.Helper()
	columns := []struct{ title, resource string }{
		{"metrics-server " + strings.TrimPrefix(metricsServer.version, "v"), "pods.v1beta1.metrics.k8s.io"},
		{"hand-written", "gadgets.v1.workshop.example.com"},
		{"`registry.Live`", "widgets.v1.workshop.example.com"},
		{"`registry.Cached`", "parts.v1.workshop.example.com"},
	}
	var text strings.Builder
	text.WriteString("| check |")
	for _, c := range columns {
		fmt.Fprintf(&text, " %s |", c.title)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	words, all := map[conformance.Outcome]string{conformance.Passed: "yes", conformance.Failed: "**no**",
		conformance.Skipped: "–"}, outcomes(t)
	for _, check := range conformance.Checks() {
		if check.Area() != "existing" {
			continue
		}
		fmt.Fprintf(&text, "| %s |", check.Text)
		for _, c := range columns {
			word, ok := words[all[c.resource][check.ID]]
			if !ok {
				t.Errorf("%s has no outcome of %s", outcomesFile, check.ID)
			}
			fmt.Fprintf(&text, " %s |", word)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// table compares the table of a page with the wanted one, or writes it with -update.
func table(t *testing.T, page, want string) {
	t.Helper()
	scripttest.Generated(t, filepath.Join("..", "..", page), "go test ./test/conformance -run TestDocs -update", want,
		*update)
}
