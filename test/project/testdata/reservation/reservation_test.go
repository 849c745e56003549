package dbaas

import (
	"strings"
	"testing"
	"time"

	"example.com/extension-apiserver/pkg/conformance"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestReservations checks that the kind behaves as built-in kinds do.
func TestReservations(t *testing.T) {
	target, err := envtest.New(t, envtest.Options{Server: "./cmd/dbaas-apiserver"}).ConformanceTarget()
	if err != nil {
		t.Fatal(err)
	}
	if target.Sample, err = conformance.ReadSample("objects/reservation.yaml"); err != nil {
		t.Fatal(err)
	}
	target.Change = map[string]any{"spec": map[string]any{"description": "another example"}}
	target.Invalid = map[string]any{"spec": map[string]any{"description": strings.Repeat("x", 257)}}
	target.Timeout = 10 * time.Minute
	report := conformance.Run(t, target)
	// These show that admission works without etcd as with it.
	want := map[string]bool{"admission/create": true, "admission/quota": true, "admission/mutating-policy": true}
	for _, result := range report.Results {
		if want[result.ID] && result.Outcome == conformance.Passed {
			delete(want, result.ID)
		}
	}
	for id := range want {
		t.Errorf("the check %s has not passed", id)
	}
}
