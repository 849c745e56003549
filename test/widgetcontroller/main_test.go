// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "example.com/extension-apiserver/pkg/apis/workshop/v1"
	"example.com/extension-apiserver/test/env"
)

// asController makes the test binary the controller, so that it runs as a process of its own.
const asController = "WIDGETCONTROLLER_TEST"

// patience is how long a condition may take to come true on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestController runs the controller with the rights of rbac.yaml and nothing more.
func TestController(t *testing.T) {
	e := env.New(t, env.Options{})
	if stdout, stderr, err := (env.Kubectl{}).Run(t.Context(), e, "apply", "-f", "test/widgetcontroller/rbac.yaml"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s%s", err, stdout, stderr)
	}
	kubeconfig, err := e.AccountKubeconfig(t.Context(), metav1.NamespaceDefault, "widgetcontroller")
	if err != nil {
		t.Fatal(err)
	}
	adminConfig, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	admin := newClient(t, adminConfig)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	leastRights(t, newClient(t, config), admin)
	conflict(t, newClient(t, config), admin)
	t.Run("process", func(t *testing.T) { process(t, e, kubeconfig, admin) })
}

// leastRights: with the rights of the manifest, a status can be written and nothing else.
func leastRights(t *testing.T, controller, admin client.Client) {
	t.Helper()
	w := create(t, admin, "rights")
	w.Spec.Replicas = new(int32(5))
	other := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "other"}, Spec: w.Spec}
	for what, err := range map[string]error{
		"create": controller.Create(t.Context(), other),
		"update": controller.Update(t.Context(), w.DeepCopy()),
		"delete": controller.Delete(t.Context(), w.DeepCopy()),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s with the rights of the controller: %v, want Forbidden", what, err)
		}
	}
}

// conflict: a write that was based on an old state is refused and made again from the new one; what is right is not written.
func conflict(t *testing.T, controller client.WithWatch, admin client.Client) {
	t.Helper()
	w := create(t, admin, "conflict")
	writes := 0
	r := &reconciler{interceptor.NewClient(controller, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object, options ...client.SubResourceUpdateOption) error {
			if writes++; writes == 1 {
				replicas(t, admin, w, 3)
			}
			return c.SubResource(name).Update(ctx, obj, options...)
		},
	})}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)}
	for i, want := range []struct {
		result ctrl.Result
		writes int
	}{{ctrl.Result{RequeueAfter: retryAfter}, 1}, {ctrl.Result{}, 2}, {ctrl.Result{}, 2}} {
		if result, err := r.Reconcile(t.Context(), request); err != nil || result != want.result || writes != want.writes {
			t.Errorf("reconcile %d: %+v after %d writes, error %v; want %+v after %d", i+1, result, writes, err, want.result, want.writes)
		}
	}
	if err := ready(t.Context(), admin, w, 3); err != nil {
		t.Error(err)
	}
	if result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.Namespace, Name: "gone"}}); err != nil || !result.IsZero() {
		t.Errorf("reconcile of what is gone: %+v, error %v; want nothing", result, err)
	}
}

// process runs the command. It keeps up with changes, puts right what others write, and needs no restart when a server
// that it talks to has one.
func process(t *testing.T, e *env.Environment, kubeconfig string, admin client.Client) {
	w := create(t, admin, "w")
	stop := start(t, kubeconfig)
	follow := func(when string, want int32) {
		t.Helper()
		e.Eventually(t, "the status "+when, patience, func(ctx context.Context) error { return ready(ctx, admin, w, want) })
	}
	follow("of a widget from before", 2)
	// As kubectl scale and the HorizontalPodAutoscaler do.
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	if err := admin.SubResource("scale").Update(t.Context(), w, client.WithSubResourceBody(scale)); err != nil {
		t.Fatalf("scale: %v", err)
	}
	follow("after it was scaled", 3)

	got := &v1.Widget{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(w), got); err != nil {
		t.Fatal(err)
	}
	before := got.DeepCopy()
	got.Status.Replicas, got.Status.Selector, got.Status.Conditions = 9, "", nil
	if err := admin.Status().Patch(t.Context(), got, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	follow("after somebody overwrote it", 3)

	if err := e.RestartServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "a write after the restart of our server", patience, func(ctx context.Context) error { return tryReplicas(ctx, admin, w, 4) })
	follow("after a restart of our server", 4)
	if err := e.RestartKubeAPIServer(t.Context(), e.KubeAPIServers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "a write after the restart of kube-apiserver", patience, func(ctx context.Context) error { return tryReplicas(ctx, admin, w, 5) })
	follow("after a restart of kube-apiserver", 5)
	stop()
}

// start runs this program as the controller. The function that it returns ends it as a rollout does.
func start(t *testing.T, kubeconfig string) (stop func()) {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "--kubeconfig="+kubeconfig)
	cmd.Env = append(os.Environ(), asController+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ended error
	done := make(chan struct{})
	go func() { ended = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if t.Failed() {
			data, err := os.ReadFile(log.Name())
			t.Logf("the controller's log (%v):\n%s", err, data)
		}
	})
	return func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("the controller ended by itself: %v", err)
		}
		select {
		case <-done:
			if ended != nil {
				t.Errorf("the controller after SIGTERM: %v, want exit code 0", ended)
			}
		case <-time.After(patience):
			t.Errorf("the controller still runs %s after SIGTERM", patience)
		}
	}
}

// ready returns nil when the status is what the controller makes of so many replicas.
func ready(ctx context.Context, c client.Client, w *v1.Widget, replicas int32) error {
	got := &v1.Widget{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(w), got); err != nil {
		return err
	}
	want := v1.WidgetStatus{
		ObservedGeneration: got.Generation, Replicas: replicas, ReadyReplicas: replicas, Selector: v1.SchemeGroupVersion.Group + "/widget=" + w.Name,
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: got.Generation, Reason: "AllCopiesReady",
			Message: fmt.Sprintf("%d of %d copies are ready", replicas, replicas),
		}},
	}
	if diff := cmp.Diff(want, got.Status, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		return fmt.Errorf("status of %s in generation %d (-want +got):\n%s", w.Name, got.Generation, diff)
	}
	return nil
}

func create(t *testing.T, c client.Client, name string) *v1.Widget {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	w := &v1.Widget{ObjectMeta: meta, Spec: v1.WidgetSpec{Model: "m", Replicas: new(int32(2))}}
	if err := c.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w
}

func replicas(t *testing.T, c client.Client, w *v1.Widget, n int32) {
	t.Helper()
	if err := tryReplicas(t.Context(), c, w, n); err != nil {
		t.Fatal(err)
	}
}

func tryReplicas(ctx context.Context, c client.Client, w *v1.Widget, n int32) error {
	return c.Patch(ctx, w.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
