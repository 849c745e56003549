// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
)

// metadataCases holds metadata that a kind may reject or warn about.
var metadataCases = map[string]string{
	"finalizer without a domain":     `{"finalizers":["foo"]}`,
	"finalizer without a path":       `{"finalizers":["example.com"]}`,
	"standard finalizers":            `{"finalizers":["orphan"]}`,
	"both standard finalizers":       `{"finalizers":["orphan","foregroundDeletion"]}`,
	"qualified finalizer":            `{"finalizers":["example.com/a"]}`,
	"finalizer twice":                `{"finalizers":["example.com/a","example.com/a"]}`,
	"finalizer with two slashes":     `{"finalizers":["example.com/a/b"]}`,
	"finalizer with a space":         `{"finalizers":["example.com/a b"]}`,
	"empty finalizer":                `{"finalizers":[""]}`,
	"label key":                      `{"labels":{"a b":"c"}}`,
	"label value":                    `{"labels":{"a":"b c"}}`,
	"long label":                     `{"labels":{"a":"` + strings.Repeat("x", 64) + `"}}`,
	"annotation key":                 `{"annotations":{"a b":"c"}}`,
	"annotation key in upper case":   `{"annotations":{"Example.com/A":"c"}}`,
	"long annotation":                `{"annotations":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`,
	"owner without a UID":            `{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n"}]}`,
	"owner without a kind":           `{"ownerReferences":[{"apiVersion":"v1","name":"n","uid":"u"}]}`,
	"owner without a name":           `{"ownerReferences":[{"apiVersion":"v1","kind":"Node","uid":"u"}]}`,
	"owner without a version":        `{"ownerReferences":[{"kind":"Node","name":"n","uid":"u"}]}`,
	"owner's version":                `{"ownerReferences":[{"apiVersion":"a/b/c","kind":"Node","name":"n","uid":"u"}]}`,
	"owner that is an event":         `{"ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"n","uid":"u"}]}`,
	"owner twice":                    `{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"},{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}`,
	"two controllers":                `{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true},{"apiVersion":"v1","kind":"Node","name":"m","uid":"v","controller":true}]}`,
	"generation":                     `{"generation":-1}`,
	"deletion":                       `{"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":-5}`,
	"self link":                      `{"selfLink":"/x"}`,
	"managed fields of no type":      `{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"x"}]}`,
	"managed fields of no operation": `{"managedFields":[{"manager":"m","operation":"x","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}`,
	"another namespace":              `{"namespace":"other"}`,
	"other UID":                      `{"uid":"x"}`,
	"creation":                       `{"creationTimestamp":"2020-01-01T00:00:00Z"}`,
}

// nameCases lists names of objects to create.
var nameCases = []string{"Upper", "a_b", "a..b", "-a", "a-", "a.b", "a/b", "a%b", "..", ".", strings.Repeat("a", 253),
	strings.Repeat("a", 254), "", "ä"}

// TestMetadata checks that metadata is rejected, or returned with a warning, as kube-apiserver
// does for custom resources. Built-in kinds differ in finalizers, which they reject instead of
// warning.
func TestMetadata(t *testing.T) {
	namespace := shared.NewNamespace(t)
	custom := customKind(t)
	kinds := map[string]kindUnderTest{
		"ours":   {widgetCase.resource, "Widget"},
		"custom": {custom, "Probe"},
	}
	for name, metadata := range metadataCases {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			for who, k := range kinds {
				got[who] = append(k.try(t, namespace, "create", metadata), k.try(t, namespace, "update", metadata)...)
			}
			if diff := cmp.Diff(got["custom"], got["ours"]); diff != "" {
				t.Errorf("a custom resource and ours (-custom +ours):\n%s", diff)
			}
		})
	}
	for _, name := range nameCases {
		t.Run(fmt.Sprintf("name %.10q of %d", name, len(name)), func(t *testing.T) {
			metadata, err := json.Marshal(map[string]string{"name": name})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for who, k := range kinds {
				got[who] = k.try(t, namespace, "create", string(metadata))
			}
			if diff := cmp.Diff(got["custom"], got["ours"]); diff != "" {
				t.Errorf("a custom resource and ours (-custom +ours):\n%s", diff)
			}
		})
	}
}

type kindUnderTest struct {
	resource schema.GroupVersionResource
	kind     string
}

// try creates or updates an object with the metadata in a dry run, and returns the status code,
// the fields with errors and the warnings.
func (k kindUnderTest) try(t *testing.T, namespace, verb, metadata string) []string {
	t.Helper()
	config, collected := warned(shared.Admin(t))
	all, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client := all.Resource(k.resource).Namespace(namespace)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.resource.GroupVersion().String(), "kind": k.kind, "metadata": map[string]any{"name": "o"},
		"spec": map[string]any{"model": "m"},
	}}
	dryRun := []string{metav1.DryRunAll}
	if verb == "create" {
		if err := json.Unmarshal([]byte(metadata), new(obj.Object["metadata"].(map[string]any))); err != nil {
			t.Fatal(err)
		}
		_, err = client.Create(t.Context(), obj, metav1.CreateOptions{DryRun: dryRun})
	} else {
		if _, err := client.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = client.Patch(t.Context(), "o", types.MergePatchType, []byte(`{"metadata":`+metadata+`}`),
			metav1.PatchOptions{DryRun: dryRun})
		if err := client.Delete(t.Context(), "o", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	result := append([]string{verb}, collected.got...)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		result = append(result, fmt.Sprint(status.Status().Code))
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				result = append(result, string(cause.Type)+" "+cause.Field)
			}
		}
	} else if err != nil {
		result = append(result, err.Error())
	}
	slices.Sort(result)
	return slices.Compact(result)
}

// customKind creates a CustomResourceDefinition for the duration of the test.
func customKind(t *testing.T) schema.GroupVersionResource {
	t.Helper()
	client, err := dynamic.NewForConfig(shared.Admin(t))
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"probes.metadata.example.com"},"spec":{
		"group":"metadata.example.com","scope":"Namespaced","names":{"plural":"probes","singular":"probe","kind":"Probe","listKind":"ProbeList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"model":{"type":"string"}}}}}}}]}}`), crd); err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := crds.Delete(context.WithoutCancel(t.Context()), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	probes := schema.GroupVersionResource{Group: "metadata.example.com", Version: "v1", Resource: "probes"}
	shared.Eventually(t, "the custom resource", envtest.WaitTimeout, func(ctx context.Context) error {
		_, err := client.Resource(probes).List(ctx, metav1.ListOptions{})
		return err
	})
	return probes
}
