// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/test/rollout/load"
)

const (
	production = "OVERLAY=sample/manifests/production"
	// perPhase is the minimum number of requests while something is replaced; inAll is the minimum
	// in total.
	perPhase, inAll = 300, 20_000
	// period is longer than elsewhere, because the test waits for kubelets: 40 requests a second.
	period = 100 * time.Millisecond
)

// TestProduction checks that two servers on an etcd cluster serve requests while the CronJob
// renews their certificate and while they are replaced. kube-apiserver reaches them by the
// Service's address. Then a member of etcd fails.
func TestProduction(t *testing.T) {
	c := newProduction(t)
	// Only writes that meet a closing connection may fail (docs/operate/high-availability.md).
	underLoad(c, "cluster-ip", load.UnsentWrite, step{"renewal", renewal}, step{"rollout", rollout})
	memberGoes(c)
	removeProduction(c)
}

// TestRotation checks that requests succeed while the servers are replaced, and while the CronJob
// replaces their CA. kube-apiserver reaches the servers by their endpoints.
func TestRotation(t *testing.T) {
	c := newProduction(t)
	routeToEndpoints(c)
	underLoad(c, "endpoints", nil, step{"rollout", ageCA}, step{"new CA", replaceCA})
	removeAtOnce(c)
}

// newProduction deploys two servers on an etcd cluster, in place of an earlier deployment.
func newProduction(t *testing.T) cluster {
	t.Helper()
	c := newCluster(t)
	if _, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err == nil {
		c.script("undeploy.sh", "PURGE=1")
	}
	startEtcd(c)
	c.script("deploy.sh", production)
	return c
}

// clusterGoes reports whether scripts/kind-test.sh deletes the cluster after the test, so that the
// test need not restore it.
var clusterGoes = os.Getenv("CLUSTER_GOES") != ""

// routeToEndpoints makes kube-apiserver reach the servers by their endpoints until the test ends.
func routeToEndpoints(c cluster) {
	c.Helper()
	if !clusterGoes {
		c.Cleanup(func() { c.script("kind.sh routing cluster-ip") })
	}
	c.script("kind.sh routing endpoints")
}

// removeProduction undeploys with the tens of thousands of objects that the load left.
func removeProduction(c cluster) {
	c.Helper()
	c.script("undeploy.sh", production, "PURGE=1")
	removeEtcd(c)
}

// removeAtOnce leaves the objects to be deleted with their etcd, which saves minutes: after
// undeploy, the API that would delete them no longer runs.
func removeAtOnce(c cluster) {
	c.Helper()
	if clusterGoes {
		return
	}
	c.script("undeploy.sh", production)
	removeProduction(c)
}

type step struct {
	name string
	take func(cluster)
}

func underLoad(c cluster, prefix string, tolerate func(method string, err error) bool, steps ...step) {
	c.Helper()
	// Just after a restart kube-apiserver uses the state of the API that it stored before, and
	// then the result of its first own check, which may fail.
	responses := 0
	c.eventually("the API after the restart of kube-apiserver", func(ctx context.Context) error {
		if _, err := c.dynamic.Resource(widgets).List(ctx, metav1.ListOptions{}); err != nil {
			responses = 0
			return err
		}
		if responses++; responses < 20 {
			return fmt.Errorf("%d responses in a row, want 20", responses)
		}
		return nil
	})
	l := load.Start(c.T, load.Options{Through: []*rest.Config{c.config},
		Kind: widgets.GroupVersion().WithKind("Gadget"), Prefix: prefix, Period: period, Tolerate: tolerate})
	l.Await(perPhase)
	for _, s := range steps {
		l.Enter(s.name)
		s.take(c)
		l.Await(perPhase)
	}
	l.Enter("after")
	l.Await(max(perPhase, inAll-l.Total()))
	l.End()
	if c.Failed() {
		c.FailNow() // keep the failure at the end of the output
	}
}

func serverPods(c cluster) []corev1.Pod {
	c.Helper()
	list, err := c.core.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{LabelSelector: server})
	if err != nil || len(list.Items) != 2 {
		c.Fatalf("got %d pods, %v, want 2", len(list.Items), err)
	}
	return list.Items
}

// rollout does what `kubectl rollout restart` does, and waits until all pods are new.
func rollout(c cluster) {
	c.Helper()
	deployments := c.core.AppsV1().Deployments(namespace)
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339))
	changed, err := deployments.Patch(c.Context(), name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.eventually("the rollout", func(ctx context.Context) error {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: server})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration < changed.Generation || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 ||
			len(pods.Items) != 2 {
			return fmt.Errorf("%d updated, %d available, %d pods, want 2", s.UpdatedReplicas, s.AvailableReplicas,
				len(pods.Items))
		}
		return nil
	})
}

// memberGoes checks that objects can be read and written while one member of three is down.
func memberGoes(c cluster) {
	c.Helper()
	widget := c.createWidget("kept")
	if err := c.core.CoreV1().Pods(etcdNamespace).Delete(c.Context(), etcdName+"-0",
		metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	// The others may have to elect a leader first.
	c.eventually("the widget, while a member of etcd is down",
		func(ctx context.Context) error { return c.sameWidget(ctx, widget) })
	c.eventually("a write, while a member of etcd is down", func(ctx context.Context) error {
		return c.dynamic.Resource(widgets).Namespace(metav1.NamespaceDefault).Delete(ctx, widget.GetName(),
			metav1.DeleteOptions{})
	})
}
