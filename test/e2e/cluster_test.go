// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "workshop-system"
	name      = "extension-apiserver"
)

// patience is the default timeout of a wait on a busy machine. A pod creates the volume, and a pod
// takes seconds to start.
const patience = 3 * time.Minute

var widgets = schema.GroupVersionResource{Group: "workshop.example.com", Version: "v1", Resource: "widgets"}

// cluster holds administrator clients for the cluster of KUBECONFIG.
type cluster struct {
	*testing.T
	config    *rest.Config
	core      kubernetes.Interface
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		t.Fatal("KUBECONFIG is not set, expected the kubeconfig of a kind cluster; run: make kind-test")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NoWarnings{} // the snapshot also lists deprecated resources
	c := cluster{T: t, config: config}
	var errs [3]error
	c.core, errs[0] = kubernetes.NewForConfig(config)
	c.dynamic, errs[1] = dynamic.NewForConfig(config)
	c.discovery, errs[2] = discovery.NewDiscoveryClientForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually calls check until it returns nil. After patience it fails the test with the last
// error.
func (c cluster) eventually(what string, check func(context.Context) error) {
	c.Helper()
	c.within(patience, what, check)
}

func (c cluster) within(limit time.Duration, what string, check func(context.Context) error) {
	c.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.Context(), time.Second, limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		// The last request may fail because time ran out. The error before it is the useful one.
		if err == nil || last == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		c.Fatalf("%s: not within %s: %v", what, limit, last)
	}
}

// script runs a command line of scripts/ with additional environment variables, and returns its
// output. It can run in a cleanup.
func (c cluster) script(script string, variables ...string) (out string) {
	c.Helper()
	line := strings.Fields(script)
	cmd := exec.CommandContext(context.WithoutCancel(c.Context()),
		filepath.Join("..", "..", "scripts", line[0]), line[1:]...)
	cmd.Env = append(os.Environ(), variables...)
	data, err := cmd.CombinedOutput()
	if err != nil {
		c.Fatalf("%s %s: %v\n%s", script, strings.Join(variables, " "), err, data)
	}
	c.Logf("%s %s\n%s", script, strings.Join(variables, " "), data)
	return string(data)
}

// createWidget creates a Widget in the namespace default.
func (c cluster) createWidget(name string) *unstructured.Unstructured {
	c.Helper()
	created, err := c.dynamic.Resource(widgets).Namespace(metav1.NamespaceDefault).Create(c.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "workshop.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"model": "pendulum"},
		}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return created
}

// sameWidget returns an error if the widget has another UID or resourceVersion than before.
func (c cluster) sameWidget(ctx context.Context, want *unstructured.Unstructured) error {
	got, err := c.dynamic.Resource(widgets).Namespace(want.GetNamespace()).Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got.GetUID() != want.GetUID() || got.GetResourceVersion() != want.GetResourceVersion() {
		return errors.New("it is another object: " + string(got.GetUID()) + " at " + got.GetResourceVersion() +
			", want " + string(want.GetUID()) + " at " + want.GetResourceVersion())
	}
	return nil
}

func (c cluster) deleteWidget(widget *unstructured.Unstructured) {
	c.Helper()
	if err := c.dynamic.Resource(widgets).Namespace(widget.GetNamespace()).Delete(c.Context(), widget.GetName(),
		metav1.DeleteOptions{}); err != nil {
		c.Error(err)
	}
}
