// SPDX-License-Identifier: Apache-2.0

package apitesting

import (
	"context"
	"os"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Served creates the object in a file under another name in the cluster of a kubeconfig, reads it, changes it, finds it in a list,
// and deletes it. A kind that can only be created, such as a review, is only created. The object is in the namespace default unless it
// names one.
func Served(t *testing.T, kubeconfig, file string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	objects, verbs := clientFor(t, kubeconfig, object)
	ctx := t.Context()
	if !slices.Contains(verbs, "get") {
		if _, err := objects.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Errorf("create %s: %v", file, err)
		}
		return
	}
	name := "served-" + rand.String(6)
	object.SetName(name)
	created, err := objects.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", file, err)
	}
	t.Cleanup(func() {
		if err := objects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", name, err)
		}
	})
	read, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil || read.GetUID() != created.GetUID() {
		t.Errorf("get %s: %v, with uid %q, want %q", name, err, read.GetUID(), created.GetUID())
	}
	changed, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"served":"yes"}}}`), metav1.PatchOptions{})
	if err != nil || changed.GetLabels()["served"] != "yes" {
		t.Errorf("patch %s: %v, with labels %v", name, err, changed.GetLabels())
	}
	list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "served=yes"})
	if err != nil || !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetName() == name }) {
		t.Errorf("list: %v, without %s", err, name)
	}
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete %s: %v", name, err)
	}
	if _, err := objects.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get %s after it was deleted: %v, want not found", name, err)
	}
}

// clientFor returns a client for objects of the kind, and the verbs that it takes.
func clientFor(t *testing.T, kubeconfig string, object *unstructured.Unstructured) (dynamic.ResourceInterface, []string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := found.ServerResourcesForGroupVersion(object.GetAPIVersion())
	if err != nil {
		t.Fatalf("discover %s: %v", object.GetAPIVersion(), err)
	}
	gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.APIResources {
		if r.Kind != object.GetKind() || r.Group != "" && r.Group != gv.Group {
			continue
		}
		namespaceable := client.Resource(gv.WithResource(r.Name))
		if !r.Namespaced {
			return namespaceable, r.Verbs
		}
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return namespaceable.Namespace(namespace), r.Verbs
	}
	t.Fatal(&meta.NoKindMatchError{GroupKind: gv.WithKind(object.GetKind()).GroupKind(), SearchedVersions: []string{gv.Version}})
	return nil, nil
}
