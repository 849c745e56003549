// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// TestUninstall checks that undeploy keeps the data, and that with PURGE=1 the cluster equals the
// cluster before.
func TestUninstall(t *testing.T) {
	c := newCluster(t)
	if _, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err == nil {
		c.script("undeploy.sh", "PURGE=1")
	}
	before := c.settled()

	c.script("deploy.sh")
	widget := c.createWidget("kept")
	c.script("undeploy.sh")
	if _, err := c.core.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Errorf("after undeploy: %v, want the namespace", err)
	}
	_, err := c.dynamic.Resource(widgets).Namespace(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("widgets after undeploy: got %v, want NotFound: no APIService is left", err)
	}
	// Nothing is left to remove, and that is not an error.
	c.script("undeploy.sh")

	c.script("deploy.sh")
	if err := c.sameWidget(t.Context(), widget); err != nil {
		t.Errorf("the widget after undeploy and deploy: %v", err)
	}
	c.script("undeploy.sh", "PURGE=1")
	c.eventually("the cluster to be as before", func(ctx context.Context) error {
		after, err := c.snapshot(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(before, after); diff != "" {
			return errors.New("before (-) and after (+):\n" + diff)
		}
		return nil
	})
	c.script("undeploy.sh", "PURGE=1")
}

// settled returns a snapshot that no longer changes: a young cluster is still creating objects.
func (c cluster) settled() map[string]string {
	c.Helper()
	// DNS becomes an endpoint of its Service some time after the node is ready.
	c.eventually("all pods to be ready", func(ctx context.Context) error {
		pods, err := c.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("pod %s/%s is not ready", pod.Namespace, pod.Name)
			}
		}
		return nil
	})
	var last map[string]string
	same := 0
	c.eventually("the cluster to settle", func(ctx context.Context) error {
		now, err := c.snapshot(ctx)
		if err != nil {
			return err
		}
		diff := cmp.Diff(last, now)
		if last = now; diff != "" {
			same = 0
			return errors.New("it changed:\n" + diff)
		}
		if same++; same < 10 {
			return errors.New("it has not been the same for 10 s yet")
		}
		return nil
	})
	return last
}

// aside lists the resources that change while nothing happens: events, leases, and the kubelet's
// measurements.
var aside = []string{"events", "leases", "componentstatuses"}

// snapshot returns all objects of the cluster by name, without their status and the fields that
// every write changes.
func (c cluster) snapshot(ctx context.Context) (map[string]string, error) {
	lists, err := discovery.ServerPreferredResources(c.discovery)
	if err != nil {
		return nil, err
	}
	objects := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(aside, resource.Name) {
				continue
			}
			if err := c.snapshotOf(ctx, gv.WithResource(resource.Name), objects); err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
		}
	}
	return objects, nil
}

func (c cluster) snapshotOf(ctx context.Context, resource schema.GroupVersionResource, into map[string]string) error {
	items, err := c.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range items.Items {
		item.SetResourceVersion("")
		item.SetManagedFields(nil)
		item.SetGeneration(0)
		delete(item.Object, "status")
		data, err := json.Marshal(item.Object)
		if err != nil {
			return err
		}
		into[strings.Join([]string{resource.GroupResource().String(), item.GetNamespace(), item.GetName()},
			" ")] = string(data)
	}
	return nil
}
