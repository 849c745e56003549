// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/pkg/envtest"
)

// TestKilled kills certgen once in each step of every rotation, with SIGKILL, and starts it again. No request fails.
func TestKilled(t *testing.T) {
	takeOver(t, newCluster(t, shared))
	old := oldMaterial(t)
	l := startLoad(t, shared, "killed")
	for _, name := range rotation.Rotations() {
		plan, err := rotation.Plan(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range plan {
			l.Enter("killed in " + name + "/" + step.Name)
			// The steps before it are in the record; the killed one is resumed.
			if outcome, stderr := certgenRotate(t, shared, name, step.Name, !step.Holds); outcome != "killed" {
				l.End()
				t.Fatalf("certgen was not killed in step %s: %s\n%s", step.Name, outcome, stderr)
			}
			state, err := rotation.ReadState(certs.Dir(shared.PKI()))
			// It runs on for the moment that the signal takes.
			if err != nil || !slices.ContainsFunc(state.Steps, func(s rotation.StepState) bool { return s.Name == step.Name }) {
				t.Fatalf("after the kill in step %s the record says %+v, %v", step.Name, state, err)
			}
		}
		l.Enter(name + " to its end")
		if outcome, stderr := certgenRotate(t, shared, name, "", false); outcome != "done" {
			l.End()
			t.Fatalf("%s: %s\n%s", name, outcome, stderr)
		}
	}
	l.End()
	old.checkRefused(t, newCluster(t, shared))
}

// certgenRotate rotates what is in the directory, see certgen.
func certgenRotate(t *testing.T, e *envtest.Environment, name, killIn string, early bool, args ...string) (outcome, stderr string) {
	t.Helper()
	return certgen(t, e, killIn, early, append([]string{"rotate", name, "--dir", e.PKI()}, args...)...)
}

// certgen runs until it ends, or until an event of a step, when it is killed: when the step begins, or when it was observed.
func certgen(t *testing.T, e *envtest.Environment, killIn string, early bool, args ...string) (outcome, stderr string) {
	t.Helper()
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--service", service.Name, "--namespace", service.Namespace,
		"--kubeconfig", kubeconfig, "--hold", "1s", "--timeout", "60s", "--settle", "5s", "-o", "json")
	cmd := exec.CommandContext(t.Context(), e.Certgen(), args...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartCommand(cmd); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var event rotation.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Kind != "RotationEvent" {
			continue // the record, over several lines
		}
		if event.Type == rotation.EventEnded && outcome != "killed" { // it may come to its end before the signal arrives
			outcome = event.Message
		}
		begun := event.Type == rotation.EventStarted || event.Type == rotation.EventResumed
		if event.Step == killIn && killIn != "" && (early && begun || event.Type == rotation.EventObserved) {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			outcome = "killed"
		}
	}
	if outcome == "killed" {
		defer freeLease(t, e)
	}
	if err := cmd.Wait(); err != nil && outcome != "killed" {
		return err.Error(), errOut.String()
	}
	return outcome, errOut.String()
}

// freeLease takes the Lease of a certgen that is dead away, so that each kill does not cost the 15 s for which it stays: once they were waited
// for.
func freeLease(t *testing.T, e *envtest.Environment) {
	t.Helper()
	waited := false
	waitForLease.Do(func() { waited = true })
	if waited {
		return
	}
	err := newCluster(t, e).Core.CoordinationV1().Leases(service.Namespace).Delete(t.Context(), rotation.LeaseName(service), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

var waitForLease sync.Once
