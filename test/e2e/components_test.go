// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// TestComponents deploys the components that no other suite covers, one after the other onto the
// current deployment: the network profiles, with other ports and the network of the node, and
// monitoring. cert-manager is not covered, because its images cannot be built from its modules.
func TestComponents(t *testing.T) {
	c := newCluster(t)
	monitoringCRDs(c)
	var overlay string
	for _, tc := range []struct {
		component string
		port      int32
	}{
		{"profile-port-10250", 10250}, {"profile-port-443", 443}, {"profile-host-network", 10443},
		{"monitoring", 6443}, // the last, because undeploy must know what it adds
	} {
		overlay = "OVERLAY=" + kindOverlayWith(c, tc.component)
		t.Run(tc.component, func(t *testing.T) {
			c := c
			c.T = t
			c.script("deploy.sh", overlay)
			pods, err := c.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: server})
			if err != nil || len(pods.Items) != 1 {
				t.Fatalf("got %d pods, %v, want 1", len(pods.Items), err)
			}
			if got := pods.Items[0].Spec.Containers[0].Ports[0].ContainerPort; got != tc.port {
				t.Errorf("the pod listens on %d, want %d", got, tc.port)
			}
			identity(c)
			c.deleteWidget(c.createWidget(tc.component))
		})
	}
	c.script("undeploy.sh", overlay, "PURGE=1")
}

// monitoringCRDs applies the CustomResourceDefinitions of the Prometheus operator, from its
// module, until the test ends.
func monitoringCRDs(c cluster) {
	c.Helper()
	download := exec.CommandContext(c.Context(), "go", "mod", "download", "-json",
		"github.com/prometheus-operator/prometheus-operator")
	download.Dir = filepath.Join("..", "manifests", "crds")
	out, err := download.Output()
	var module struct{ Dir string }
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		c.Fatalf("go mod download: %v\n%s", err, out)
	}
	crds := c.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	kinds := []string{"servicemonitors", "prometheusrules"}
	for _, kind := range kinds {
		data, err := os.ReadFile(filepath.Join(module.Dir, "example", "prometheus-operator-crd",
			"monitoring.coreos.com_"+kind+".yaml"))
		crd := &unstructured.Unstructured{}
		if err := errors.Join(err, yaml.Unmarshal(data, crd)); err != nil {
			c.Fatal(err)
		}
		if _, err := crds.Create(c.Context(), crd, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		c.Cleanup(func() {
			if err := crds.Delete(context.WithoutCancel(c.Context()), crd.GetName(),
				metav1.DeleteOptions{}); err != nil {
				c.Error(err)
			}
		})
	}
	c.eventually("the kinds of monitoring", func(ctx context.Context) error {
		var errs []error
		for _, kind := range kinds {
			_, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1",
				Resource: kind}).List(ctx, metav1.ListOptions{})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// kindOverlayWith writes an overlay like sample/manifests/kind with one more component, and
// returns its directory.
func kindOverlayWith(c cluster, component string) string {
	c.Helper()
	dir := c.TempDir()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		c.Fatal(err)
	}
	// kustomize rejects absolute paths.
	here, err := filepath.Rel(dir, root)
	if err != nil {
		c.Fatal(err)
	}
	overlay := fmt.Sprintf(
		"resources: [%[1]s/sample/manifests/api]\ncomponents: [%[1]s/manifests/components/embedded-storage, "+
			"%[1]s/manifests/components/certificates-certgen, %[1]s/manifests/components/%[2]s, "+
			"%[1]s/sample/manifests/names, %[1]s/manifests/names]\n", here, component)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		c.Fatal(err)
	}
	return dir
}
