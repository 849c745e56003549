// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/client/clientset/versioned"
	workshopv1 "example.com/extension-apiserver/sample/apis/client/clientset/versioned/typed/workshop/v1"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// asController is the environment variable that makes the test binary run the controller, in a
// process of its own.
const asController = "WIDGET_CONTROLLER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestController runs the controller with only the permissions of rbac.yaml.
func TestController(t *testing.T) {
	e := envtest.New(t, envtest.Options{Server: "example.com/extension-apiserver/cmd/extension-apiserver"})
	if stdout, stderr, err := (envtest.Kubectl{}).Run(t.Context(), e, "apply", "-f",
		"sample/controller/rbac.yaml"); err != nil {
		t.Fatalf("kubectl apply: %v\n%s%s", err, stdout, stderr)
	}
	kubeconfig, err := e.AccountKubeconfig(t.Context(), metav1.NamespaceDefault, "widget-controller")
	if err != nil {
		t.Fatal(err)
	}
	adminConfig, err := e.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	admin := newClient(t, adminConfig).WorkshopV1().Widgets(metav1.NamespaceDefault)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	leastPermissions(t, newClient(t, config).WorkshopV1().Widgets(metav1.NamespaceDefault), admin)
	conflict(t, config, admin)
	t.Run("process", func(t *testing.T) { process(t, e, kubeconfig, admin) })
}

// leastPermissions checks that the permissions of the manifest allow writing the status and nothing
// else.
func leastPermissions(t *testing.T, controller, admin workshopv1.WidgetInterface) {
	t.Helper()
	w := create(t, admin, "permissions")
	w.Spec.Replicas = new(int32(5))
	other := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: w.Spec}
	for what, try := range map[string]func() error{
		"create": func() error { _, err := controller.Create(t.Context(), other, metav1.CreateOptions{}); return err },
		"update": func() error { _, err := controller.Update(t.Context(), w, metav1.UpdateOptions{}); return err },
		"delete": func() error { return controller.Delete(t.Context(), w.Name, metav1.DeleteOptions{}) },
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s with the permissions of the controller: %v, want Forbidden", what, err)
		}
	}
}

// conflict checks that a write based on an old state is rejected and repeated from the new one,
// and that a correct status is not written again.
func conflict(t *testing.T, config *rest.Config, admin workshopv1.WidgetInterface) {
	t.Helper()
	old := create(t, admin, "conflict")
	replicas(t, admin, old, 3)
	var writes atomic.Int32
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				writes.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	c := newController(newClient(t, config))
	// Fill the cache manually, so that it is out of date.
	store := c.factory.Workshop().V1().Widgets().Informer().GetIndexer()
	current := func() *v1.Widget {
		t.Helper()
		w, err := admin.Get(t.Context(), old.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for i, tc := range []struct {
		cached   func() *v1.Widget
		conflict bool
		writes   int32
	}{
		{func() *v1.Widget { return old }, true, 1},
		{current, false, 2},
		{current, false, 2},
	} {
		if err := store.Add(tc.cached()); err != nil {
			t.Fatal(err)
		}
		err := c.reconcile(t.Context(), cache.MetaObjectToName(old))
		if apierrors.IsConflict(err) != tc.conflict || !tc.conflict && err != nil || writes.Load() != tc.writes {
			t.Errorf("reconcile %d: error %v after %d writes; want conflict %t after %d", i+1, err, writes.Load(),
				tc.conflict, tc.writes)
		}
	}
	if err := ready(t.Context(), admin, old, 3); err != nil {
		t.Error(err)
	}
	if err := c.reconcile(t.Context(), cache.NewObjectName(old.Namespace, "gone")); err != nil || writes.Load() != 2 {
		t.Errorf("reconcile of what is gone: error %v after %d writes, want none", err, writes.Load())
	}
}

// process checks that the command follows changes, corrects a status that others overwrite, and
// needs no restart when kube-apiserver or the extension API server restarts.
func process(t *testing.T, e *envtest.Environment, kubeconfig string, admin workshopv1.WidgetInterface) {
	w := create(t, admin, "w")
	stop := start(t, kubeconfig)
	follow := func(when string, want int32) {
		t.Helper()
		e.Eventually(t, "the status "+when, envtest.WaitTimeout,
			func(ctx context.Context) error { return ready(ctx, admin, w, want) })
	}
	follow("of a widget from before", 2)
	// Scale as kubectl scale and the HorizontalPodAutoscaler do.
	scale, err := admin.GetScale(t.Context(), w.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 3
	if _, err := admin.UpdateScale(t.Context(), w.Name, scale, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("scale: %v", err)
	}
	follow("after it was scaled", 3)

	if _, err := admin.Patch(t.Context(), w.Name, types.MergePatchType,
		[]byte(`{"status":{"replicas":9,"selector":null,"conditions":null}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	follow("after somebody overwrote it", 3)

	if err := e.RestartServer(t.Context(), e.Servers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "a write after the restart of our server", envtest.WaitTimeout,
		func(ctx context.Context) error { return tryReplicas(ctx, admin, w, 4) })
	follow("after a restart of our server", 4)
	if err := e.RestartKubeAPIServer(t.Context(), e.KubeAPIServers[0]); err != nil {
		t.Fatal(err)
	}
	e.Eventually(t, "a write after the restart of kube-apiserver", envtest.WaitTimeout,
		func(ctx context.Context) error { return tryReplicas(ctx, admin, w, 5) })
	follow("after a restart of kube-apiserver", 5)
	stop()
}

// start runs this program as the controller. The returned function terminates it as a rollout
// does.
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
		case <-time.After(envtest.WaitTimeout):
			t.Errorf("the controller still runs %s after SIGTERM", envtest.WaitTimeout)
		}
	}
}

// ready returns nil if the status is the one that the controller writes for that number of
// replicas.
func ready(ctx context.Context, widgets workshopv1.WidgetInterface, w *v1.Widget, replicas int32) error {
	got, err := widgets.Get(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := v1.WidgetStatus{
		ObservedGeneration: got.Generation, Replicas: replicas, ReadyReplicas: replicas,
		Selector: v1.SchemeGroupVersion.Group + "/widget=" + w.Name,
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

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func create(t *testing.T, widgets workshopv1.WidgetInterface, name string) *v1.Widget {
	t.Helper()
	w := &v1.Widget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.WidgetSpec{Model: "m", Replicas: new(int32(2))}}
	w, err := widgets.Create(t.Context(), w, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func replicas(t *testing.T, widgets workshopv1.WidgetInterface, w *v1.Widget, n int32) {
	t.Helper()
	if err := tryReplicas(t.Context(), widgets, w, n); err != nil {
		t.Fatal(err)
	}
}

func tryReplicas(ctx context.Context, widgets workshopv1.WidgetInterface, w *v1.Widget, n int32) error {
	_, err := widgets.Patch(ctx, w.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n),
		metav1.PatchOptions{})
	return err
}

func newClient(t *testing.T, config *rest.Config) versioned.Interface {
	t.Helper()
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}
