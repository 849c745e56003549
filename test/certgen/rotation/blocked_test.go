// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"

	"example.com/extension-apiserver/internal/certs"
	"example.com/extension-apiserver/internal/rotation"
)

// TestBlockedAndAborted checks that certgen does not start if another field manager owns a
// caBundle, or if cert-manager manages it. If that happens during a rotation, certgen stops with
// exit code 3. After an abort the CA and the certificate in use are the ones from before.
func TestBlockedAndAborted(t *testing.T) {
	c := newCluster(t, shared)
	old := oldMaterial(t)
	apiServices, err := c.APIServices(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	annotate := func(value any) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"cert-manager.io/inject-ca-from": value}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Aggregator.ApiregistrationV1().APIServices().Patch(t.Context(), apiServices[0].Name,
			types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (int, string) {
		kubeconfig, err := shared.AdminKubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		args = append([]string{
			"rotate", rotation.ServingCA, "--dir", shared.PKI(), "--kubeconfig", kubeconfig,
			"--service", service.Name, "--namespace", service.Namespace, "--hold", "1s", "--timeout", "60s",
		}, args...)
		cmd := exec.CommandContext(t.Context(), shared.Certgen(), args...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := shared.StartCommand(cmd); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code is checked below
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	refused := func(want string) {
		t.Helper()
		if code, stderr := run(); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, want 1 and %q:\n%s", code, want, stderr)
		}
		if state, err := rotation.ReadState(certs.Dir(shared.PKI()), rotation.ServingCA); err != nil ||
			state.Unfinished() {
			t.Errorf("the record is %+v, %v; want that nothing has begun", state, err)
		}
	}
	if _, err := c.Aggregator.ApiregistrationV1().APIServices().Patch(t.Context(), apiServices[0].Name,
		types.ApplyPatchType, sameCABundle(t, apiServices[0]),
		metav1.PatchOptions{FieldManager: "helm"}); err != nil {
		t.Fatal(err)
	}
	refused(`"helm"`)
	takeOver(t, c)
	annotate("demo/widgets")
	refused("cert-manager owns the caBundle")
	annotate(nil)
	if outcome, stderr := certgenRotate(t, shared, rotation.ServingCA, "stage", true); outcome != "killed" {
		t.Fatalf("certgen was not killed in its first step: %s\n%s", outcome, stderr)
	}
	annotate("demo/widgets")
	if code, stderr := run(); code != 3 || !strings.Contains(stderr, "step trust blocked") ||
		!strings.Contains(stderr, "cert-manager owns the caBundle") {
		t.Errorf("exit code %d, want 3 and the reason:\n%s", code, stderr)
	}
	annotate(nil)
	if code, stderr := run("--abort"); code != 0 {
		t.Fatalf("abort: exit code %d:\n%s", code, stderr)
	}
	state, err := rotation.ReadState(certs.Dir(shared.PKI()), rotation.ServingCA)
	if err != nil || state.Outcome != rotation.Aborted {
		t.Errorf("the record is %+v, %v; want aborted", state, err)
	}
	if now := oldMaterial(t); !now.serving.Certificate.Equal(old.serving.Certificate) ||
		!now.servingCA[0].Equal(old.servingCA[0]) {
		t.Error("the serving certificate or its CA is not the one from before")
	}
}

// sameCABundle returns an apply configuration with the current caBundle.
func sameCABundle(t *testing.T, a apiregistrationv1.APIService) []byte {
	t.Helper()
	patch, err := json.Marshal(apiregistrationv1ac.APIService(a.Name).WithSpec(
		apiregistrationv1ac.APIServiceSpec().WithCABundle(a.Spec.CABundle...)).WithUID(a.UID))
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// TestFrontProxyCAAborted checks that an abort also removes the new CA from the ConfigMap, once
// every kube-apiserver has published it. The CA stays removed for longer than the minute after
// which each kube-apiserver publishes its file.
func TestFrontProxyCAAborted(t *testing.T) {
	t.Parallel() // after all other tests of the shared environment: it waits while TestFrontProxyPerHost does
	c := newCluster(t, shared)
	published := func() string {
		cm, err := c.TrustConfigMap(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cm.Data["requestheader-client-ca-file"]
	}
	bundle := func() string {
		data, err := os.ReadFile(filepath.Join(shared.PKI(), certs.FrontProxyClientDir, certs.BundleFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	trusted, file := published(), bundle()
	if outcome, stderr := certgenRotate(t, shared, rotation.FrontProxyCA, "trust", false); outcome != "killed" {
		t.Fatalf("certgen was not killed in its second step: %s\n%s", outcome, stderr)
	}
	if published() == trusted {
		t.Fatal("the new CA is not in the ConfigMap: nothing has to be taken out")
	}
	if _, err := rotation.Abort(t.Context(), rotation.Options{
		Rotation: rotation.FrontProxyCA, Dir: shared.PKI(), Service: service, Observer: c, Hold: time.Second,
		Timeout: 2 * settle, Settle: settle,
	}); err != nil {
		t.Fatal(err)
	}
	if got := published(); got != trusted {
		t.Errorf("the ConfigMap holds\n%s\nwant\n%s", got, trusted)
	}
	if got := bundle(); got != file {
		t.Errorf("ca.crt holds\n%s\nwant\n%s", got, file)
	}
}
