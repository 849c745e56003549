// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/cluster/apply"
	"example.com/extension-apiserver/internal/rotation"
	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/rollout/load"
)

// TestKilled checks that no request fails when certgen is killed with SIGKILL once in each step of
// every rotation, and restarted.
func TestKilled(t *testing.T) {
	takeOver(t, newCluster(t, shared))
	old := oldMaterial(t)
	l := startLoad(t, shared, "killed")
	for _, name := range rotation.Rotations() {
		plan := rotation.Plan(name)
		for _, step := range plan {
			l.Enter("killed in " + name + "/" + step.Name)
			// The steps before it are in the record; the killed one is resumed.
			if outcome, stderr := certgenRotate(t, shared, name, step.Name, !step.Holds); outcome != "killed" {
				l.End()
				t.Fatalf("certgen was not killed in step %s: %s\n%s", step.Name, outcome, stderr)
			}
			state, err := rotation.ReadState(certs.Dir(shared.PKI()), name)
			// The process continues until the signal arrives.
			if err != nil || !slices.ContainsFunc(state.Steps,
				func(s rotation.StepState) bool { return s.Name == step.Name }) {
				t.Fatalf("after the kill in step %s the record is %+v, %v", step.Name, state, err)
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

// certgenRotate rotates the certificates in the directory, see certgen.
func certgenRotate(t *testing.T, e *envtest.Environment, name, killIn string, early bool,
	args ...string) (outcome, stderr string) {
	t.Helper()
	return certgen(t, e, killIn, early, append([]string{"rotate", name, "--dir", e.PKI()}, args...)...)
}

// certgen runs until it exits. If killIn is set, it is killed when the step begins if early is
// set, or else when the step was observed.
func certgen(t *testing.T, e *envtest.Environment, killIn string, early bool, args ...string) (outcome, stderr string) {
	t.Helper()
	kubeconfig, err := e.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	flags := append([]string{args[0], "--service", service.Name, "--namespace", service.Namespace,
		"--kubeconfig", kubeconfig, "--hold", "1s", "--timeout", "60s", "--settle", "5s", "-o", "json"}, args[1:]...)
	cmd := exec.CommandContext(t.Context(), e.Certgen(), flags...)
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
		// it may exit before the signal arrives
		if event.Type == rotation.EventEnded && outcome != "killed" {
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

// freeLease deletes the Lease of a killed certgen, so that not every kill costs its 45 s. The
// first time the test waits for them.
func freeLease(t *testing.T, e *envtest.Environment) {
	t.Helper()
	waited := false
	waitForLease.Do(func() { waited = true })
	if waited {
		return
	}
	for _, s := range []certs.Service{service, rotation.FrontProxy} {
		err := newCluster(t, e).Core.CoordinationV1().Leases(s.Namespace).Delete(t.Context(), apply.LeaseName(s),
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

var waitForLease sync.Once

// TestTwoOperators checks that no request fails when two rotations, the second from a copy of the
// directory, meet at every pair of steps that both can reach. The first stops in each of its
// steps, while the second continues as far as it can: to its switch, which no server sees. Then
// the second stops in each step before that, while the first completes. The rotation whose
// directory the servers and kube-apiservers read completes.
func TestTwoOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: internal/rotation lets two operators meet at every step")
	}
	c := newCluster(t, shared)
	takeOver(t, c)
	l := startLoad(t, shared, "operators")
	defer l.End()
	for _, name := range rotation.Rotations() {
		second := newOperator(t, name)
		firstStands(t, l, name, second)
		second.takenBack(c, l)
		for _, step := range rotation.Plan(name) {
			if step.Kind == rotation.Identity {
				break // where it stopped before
			}
			second := newOperator(t, name)
			secondStands(t, l, name, second, step)
			second.takenBack(c, l)
		}
	}
}

// operator runs certgen in a copy of the directory.
type operator struct {
	t         *testing.T
	name, dir string
}

func newOperator(t *testing.T, name string) *operator {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.CopyFS(dir, os.DirFS(shared.PKI())); err != nil {
		t.Fatal(err)
	}
	return &operator{t: t, name: name, dir: dir}
}

func (o *operator) rotate(killIn string, early bool, args ...string) (outcome, stderr string) {
	o.t.Helper()
	return certgen(o.t, shared, killIn, early, append([]string{"rotate", o.name, "--dir", o.dir}, args...)...)
}

// blocked runs the rotation as far as it can go.
func (o *operator) blocked(when string) {
	o.t.Helper()
	if outcome, stderr := o.rotate("", false, "--timeout=5s"); outcome != "exit status 3" {
		o.t.Fatalf("the second one %s: %s, want it blocked in a step of its own, since no server reads its directory\n%s",
			when, outcome, stderr)
	}
}

// takenBack aborts the rotation, and removes what it left in the cluster.
func (o *operator) takenBack(c apply.Client, l *load.Load) {
	o.t.Helper()
	l.Enter(o.name + ": the second is aborted")
	_, _ = o.rotate("", false, "--timeout=5s", "--abort") // its CA may no longer exist
	if o.name != rotation.ServingCA {
		return
	}
	// Its CA is trusted beside that of the first one, until it is removed there.
	ca := certificate(o.t, filepath.Join(shared.PKI(), certs.ServingCADir))
	l.Enter(o.name + ": the second one's CA is taken out")
	applyDir(o.t, c, apply.Options{ReplaceTrust: true})
	checkTrust(o.t, c, ca, 1)
}

// firstStands kills a first certgen in each step and lets the second one go as far as it can. Then
// the first completes.
func firstStands(t *testing.T, l *load.Load, name string, second *operator) {
	t.Helper()
	for _, step := range rotation.Plan(name) {
		l.Enter("the first stands in " + name + "/" + step.Name)
		if outcome, stderr := certgenRotate(t, shared, name, step.Name, !step.Holds); outcome != "killed" {
			t.Fatalf("the first was not killed in step %s: %s\n%s", step.Name, outcome, stderr)
		}
		second.blocked("at step " + step.Name)
	}
	l.Enter(name + ": the first to its end")
	if outcome, stderr := certgenRotate(t, shared, name, "", false); outcome != "done" {
		t.Fatalf("the first: %s\n%s", outcome, stderr)
	}
}

// secondStands kills the second certgen in one step, when the CA of a trust step that it can
// observe is trusted, while the first completes. Then the second continues.
func secondStands(t *testing.T, l *load.Load, name string, second *operator, step rotation.StepInfo) {
	t.Helper()
	l.Enter("the second stands in " + name + "/" + step.Name)
	if outcome, stderr := second.rotate(step.Name, name != rotation.ServingCA || !step.Holds); outcome != "killed" {
		t.Fatalf("the second was not killed in step %s: %s\n%s", step.Name, outcome, stderr)
	}
	if outcome, stderr := certgenRotate(t, shared, name, "", false); outcome != "done" {
		t.Fatalf("the first, with the second in step %s: %s\n%s", step.Name, outcome, stderr)
	}
	second.blocked("from step " + step.Name)
}

// checkTrust checks that each caBundle contains the CA, and has count CAs in total.
func checkTrust(t *testing.T, c apply.Client, ca *x509.Certificate, count int) {
	t.Helper()
	apiServices, err := c.APIServices(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range apiServices {
		if bundle, err := certs.ParseBundle(a.Spec.CABundle); err != nil || len(bundle) != count ||
			!bundle.Contains(ca) {
			t.Errorf("caBundle of %s: %d CAs, %v; want %d, and %s among them", a.Name, len(bundle), err,
				count, ca.Subject)
		}
	}
}
