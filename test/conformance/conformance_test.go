// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// targets reads testdata/targets.yaml.
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
		for name, patch := range map[string]*map[string]any{"change": &target.Change, "invalid": &target.Invalid, "status": &target.Status} {
			if text, ok := sample.GetAnnotations()[name]; ok {
				if err := json.Unmarshal([]byte(text), patch); err != nil {
					t.Fatalf("%s: the annotation %s: %v", target.Resource, name, err)
				}
			}
		}
		sample.SetAnnotations(nil)
		out = append(out, target)
	}
}

// TestCalibration runs all checks against each target.
func TestCalibration(t *testing.T) {
	e := envtest.New(t, envtest.Options{})
	if _, err := e.StartSampleAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	crd, err := filepath.Abs(filepath.Join("testdata", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e, "apply", "-f", crd); err != nil {
		t.Fatalf("kubectl apply: %v\n%s%s", err, stdout, stderr)
	}
	if stdout, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e, "wait", "--for=condition=Established", "-f", crd); err != nil {
		t.Fatalf("kubectl wait: %v\n%s%s", err, stdout, stderr)
	}
	config, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets(t, config) {
		t.Run(strings.ReplaceAll(target.Resource, "/", "_"), func(t *testing.T) {
			report, err := conformance.Execute(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.1f s: %d passed, %d failed, %d skipped", report.Seconds, report.Count("", conformance.Passed), report.Count("", conformance.Failed), report.Count("", conformance.Skipped))
			for _, result := range report.Results {
				if result.Outcome == conformance.Failed || result.Outcome == conformance.Skipped && os.Getenv("SHOW_SKIPPED") != "" {
					t.Logf("%s %s (%s, %.1f s): %s", result.Outcome, result.ID, result.Level, result.Seconds, strings.Join(result.Messages, "; "))
				}
			}
			for _, left := range report.Left {
				t.Errorf("left: %s", left)
			}
		})
	}
}
