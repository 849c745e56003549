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
	// perPhase and inAll are how many requests are sent while something is replaced, and in all, at least.
	perPhase, inAll = 300, 20_000
	// period is longer than elsewhere, because kubelets are what is waited for: 40 requests a second.
	period = 100 * time.Millisecond
)

// TestProduction: two servers on an etcd cluster. Under load, with kube-apiserver reaching them by the Service's
// address, the CronJob renews their certificate and they are replaced; after it a member of etcd goes.
func TestProduction(t *testing.T) {
	c := newProduction(t)
	// Only writes that meet a closing connection may fail (docs/production.md).
	underLoad(c, "cluster-ip", load.UnsentWrite, step{"renewal", renewal}, step{"rollout", rollout})
	memberGoes(c)
	removeProduction(c)
}

// TestRotation: with kube-apiserver reaching the servers by their endpoints, they are replaced under load, and the
// CronJob replaces their CA.
func TestRotation(t *testing.T) {
	c := newProduction(t)
	routeToEndpoints(c)
	underLoad(c, "endpoints", nil, step{"rollout", ageCA}, step{"new CA", replaceCA})
	removeAtOnce(c)
}

// newProduction deploys two servers on an etcd cluster, in place of what was there.
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

// clusterGoes: it is removed after the test, as scripts/kind-test.sh says, so that nothing need be put back.
var clusterGoes = os.Getenv("CLUSTER_GOES") != ""

// routeToEndpoints has kube-apiserver reach the servers by their endpoints until the test ends.
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

// removeAtOnce leaves the objects to the end of their etcd, which takes minutes less: undeployed, the API is not there
// to delete them.
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
	// Just after a restart kube-apiserver answers by what it stored about the API before, and then by its first own
	// check, which may fail.
	answers := 0
	c.eventually("the API after the restart of kube-apiserver", func(ctx context.Context) error {
		if _, err := c.dynamic.Resource(widgets).List(ctx, metav1.ListOptions{}); err != nil {
			answers = 0
			return err
		}
		if answers++; answers < 20 {
			return fmt.Errorf("%d answers in a row, want 20", answers)
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
		c.FailNow() // what failed shall be the last that one reads
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

// rollout does what kubectl rollout restart does, and waits until all pods are new.
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

// memberGoes: with one member of three down, objects are read and written.
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
