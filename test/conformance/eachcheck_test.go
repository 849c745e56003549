// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"flag"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

var update = flag.Bool("update", false,
	"Write testdata/faults.json, with faults for the checks that have none there (5 minutes, or 30 without the "+
		"file), and the tables of the docs.")

// matrixFile maps each check to a fault that it detects: of several faults, the one that the
// fewest checks detect.
var matrixFile = filepath.Join("testdata", "faults.json")

// TestEachCheckFails checks that for each check there is a faulty server that fails it. A check
// that detects no fault is worthless.
func TestEachCheckFails(t *testing.T) {
	options, logs := audited(t)
	e := envtest.New(t, options)
	target := one(t, nil, "widgets.v1.workshop.example.com")
	complete(t, e, &target, nil, logs)
	passes(t, target)
	target.CheckTimeout = 6 * time.Second
	finds, without := matrix(t)
	if *update && len(without) > 0 {
		target := target
		target.Only = without
		writeMatrix(t, target, finds)
		finds, without = matrix(t)
	}
	for _, id := range without {
		t.Errorf("%s finds no fault; add one, and run: go test ./test/conformance -run TestEachCheckFails -timeout "+
			"40m -update", id)
	}
	byFault := map[string][]string{}
	for id, name := range finds {
		byFault[name] = append(byFault[name], id)
	}
	for i, name := range slices.Sorted(maps.Keys(byFault)) {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && i%5 > 0 {
				t.Skip("skipped in short mode, which injects every fifth fault")
			}
			target := target
			target.Only = byFault[name]
			report, err := with(t, target, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range report.Results {
				if message := strings.Join(result.Messages, "; "); result.Outcome != conformance.Failed ||
					strings.Contains(message, "the check panicked") {
					t.Errorf("%s %s: %s", result.ID, result.Outcome, message)
				}
			}
		})
	}
}

// TestEachExistingCheckFails checks that the checks of an existing object pass if no object can be
// created, and that each of them detects a fault.
func TestEachExistingCheckFails(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	target := one(t, nil, "widgets.v1.workshop.example.com")
	complete(t, e, &target, nil, auditLogs{})
	client, err := dynamic.NewForConfig(target.Config)
	if err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "workshop.example.com", Version: "v1",
		Resource: "widgets"}).Namespace(e.NewNamespace(t))
	object := target.Sample
	for _, name := range []string{"another", "existing"} { // lists end with the sample
		object.SetName(name)
		if target.Sample, err = widgets.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	target.Only = []string{"existing"}
	target.Config = rest.CopyConfig(target.Config)
	target.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return faulty{fault{instead: func(req *http.Request, _ http.RoundTripper) *http.Response {
			if req.Method != http.MethodPost {
				return nil
			}
			return respond(req, 403, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"read only","code":403}`))
		}}, next}
	})
	readOnly := target
	readOnly.Resource, readOnly.Actions = "parts.v1.workshop.example.com", nil
	if readOnly.Sample, err = conformance.ReadSample("../../sample/objects/part.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, target := range []conformance.Target{target, readOnly} {
		report, err := conformance.Execute(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range report.Results {
			writable := target.Resource != readOnly.Resource && result.ID == "existing/read-only"
			if result.Outcome != conformance.Passed && !writable {
				t.Errorf("%s without a fault: %s %s: %s", target.Resource, result.ID, result.Outcome,
					strings.Join(result.Messages, "; "))
			}
		}
	}
	for id, name := range map[string]string{
		"existing/get": "no kind", "existing/yaml": "no YAML", "existing/protobuf": "no protobuf",
		"existing/table":    "no tables",
		"existing/metadata": "no metadata",
		"existing/list":     "lists lose the last", "existing/list-table": "no tables",
		"existing/label-selector": "no label selectors",
		"existing/field-selector": "no field selectors", "existing/missing": "finds missing objects",
		"existing/kubectl": "404 is 500", "existing/uid": "another uid each time",
		"existing/pages": "lists lose the last", "existing/limit": "no limit",
		"existing/watch":      "watches without initial events",
		"existing/watch-list": "no bookmarks", "existing/read-only": "finds missing objects",
	} {
		target := target
		if id == "existing/read-only" {
			target = readOnly
		}
		findsFault(t, target, id, name)
	}
}

// TestEachReviewCheckFails checks that the checks of reviews pass, and that each of them detects a
// fault.
func TestEachReviewCheckFails(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	target := one(t, nil, "identityreviews.v1.workshop.example.com")
	complete(t, e, &target, nil, auditLogs{})
	target.Only = []string{"review"}
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	finds := map[string]string{
		"review/create": "no kind", "review/again": "creates are conflicts the second time",
		"review/yaml": "no YAML", "review/protobuf": "no protobuf", "review/dry-run": "no dry run",
		"review/kind": "accepts invalid requests", "review/invalid-bodies": "400 is 500",
		"review/unknown-field": "no field validation",
	}
	for _, result := range report.Results {
		if result.Outcome != conformance.Passed {
			t.Errorf("without a fault: %s %s: %s", result.ID, result.Outcome, strings.Join(result.Messages, "; "))
		}
		findsFault(t, target, result.ID, finds[result.ID])
	}
}

// findsFault checks that a check fails with a fault.
func findsFault(t *testing.T, target conformance.Target, id, fault string) {
	t.Helper()
	t.Run(id, func(t *testing.T) {
		target.Only, target.CheckTimeout = []string{id}, 6*time.Second
		report, err := with(t, target, fault)
		if err != nil {
			t.Fatal(err)
		}
		if result := report.Results[0]; result.Outcome != conformance.Failed {
			t.Errorf("with the fault %q: %s %s", fault, result.Outcome, strings.Join(result.Messages, "; "))
		}
	})
}

// passes checks that all checks pass without a fault, because a check that always fails detects
// nothing.
func passes(t *testing.T, target conformance.Target) {
	t.Helper()
	report, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	asExpected(t, report, target.Resource, expectations(t, "expected.yaml"))
	for _, result := range report.Results {
		if result.Outcome == conformance.Skipped && !ofOtherKinds(result.ID) {
			t.Errorf("%s is skipped: %s", result.ID, strings.Join(result.Messages, "; "))
		}
	}
}

// ofOtherKinds returns whether a check is for kinds whose objects cannot be created and read.
// TestEachExistingCheckFails and TestEachReviewCheckFails cover these.
func ofOtherKinds(id string) bool {
	return strings.HasPrefix(id, "existing/") || strings.HasPrefix(id, "review/")
}

// matrix reads the fault that each check detects, and returns the checks without one. A check
// that a real server fails needs no fault.
func matrix(t *testing.T) (finds map[string]string, without []string) {
	t.Helper()
	finds = map[string]string{}
	data, err := os.ReadFile(matrixFile)
	if err == nil {
		err = json.Unmarshal(data, &finds)
	}
	if err != nil && (!*update || !os.IsNotExist(err)) {
		t.Fatal(err)
	}
	entries := expectations(t, "expected.yaml")
	ids := map[string]bool{}
	for _, check := range conformance.Checks() {
		if ofOtherKinds(check.ID) {
			continue
		}
		ids[check.ID] = true
		fails := slices.ContainsFunc(entries, func(e expectation) bool { return slices.Contains(e.Checks, check.ID) })
		if _, ok := faults[finds[check.ID]]; !ok && !fails {
			without = append(without, check.ID)
		}
	}
	maps.DeleteFunc(finds, func(id, name string) bool { _, ok := faults[name]; return !ok || !ids[id] })
	return finds, without
}

// one returns a target of testdata/targets.yaml.
func one(t *testing.T, config *rest.Config, resource string) conformance.Target {
	t.Helper()
	for _, target := range targets(t, config) {
		if target.Resource == resource {
			return target
		}
	}
	t.Fatalf("testdata/targets.yaml has no %s", resource)
	return conformance.Target{}
}

// with runs the checks with a fault.
func with(t *testing.T, target conformance.Target, name string) (*conformance.Report, error) {
	t.Helper()
	f := faults[name]
	if f.fresh != nil {
		f = f.fresh()
	}
	for _, config := range []**rest.Config{&target.Config, &target.Server} {
		*config = rest.CopyConfig(*config)
		(*config).Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{f, next} })
	}
	target.Kubectl = []string{target.Kubectl[0], "--cache-dir=" + t.TempDir()}
	target.Kubectl = append(target.Kubectl, through(t, target.Config)...)
	return conformance.Execute(t.Context(), target)
}

// through serves a kube-apiserver, faults included, at a local address, and returns the flags
// with which kubectl connects to it.
func through(t *testing.T, config *rest.Config) []string {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0),
	})
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--server=" + server.URL, "--certificate-authority=" + ca, "--kubeconfig=" + os.DevNull}
}

// writeMatrix runs the target's checks with each fault, and writes the faults that they detect to
// matrixFile.
func writeMatrix(t *testing.T, target conformance.Target, finds map[string]string) {
	t.Helper()
	sound, err := conformance.Execute(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	always := map[string]bool{}
	for _, result := range sound.Failed() {
		always[result.ID] = true
		t.Logf("fails without a fault: %s: %s", result.ID, strings.Join(result.Messages, "; "))
	}
	found := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		report, err := with(t, target, name)
		if err != nil {
			t.Logf("%s: %v", name, err) // the fault prevents the run
			continue
		}
		for _, result := range report.Failed() {
			if !always[result.ID] {
				found[name] = append(found[name], result.ID)
			}
		}
		t.Logf("%s: %d checks in %.0f s", name, len(found[name]), report.Seconds)
	}
	names := slices.SortedFunc(maps.Keys(found), func(a,
		b string) int {
		return cmp.Or(len(found[a])-len(found[b]), strings.Compare(a, b))
	})
	for _, name := range names {
		for _, id := range found[name] {
			if finds[id] == "" {
				finds[id] = name
			}
		}
	}
	data, err := json.MarshalIndent(finds, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(matrixFile, append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}
