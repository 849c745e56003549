// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	v1 "example.com/extension-apiserver/test/fixture/api/v1"
)

// TestEngineRaw does with plain HTTP and JSON what Kubernetes' conformance test for aggregated servers does: whoever has
// no client library can use the API.
func TestEngineRaw(t *testing.T) {
	config := adminConfig(t, shared)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/" + engineCase.resource.GroupVersion().String() + "/namespaces/" + newNamespace(t, shared) + "/engines"
	request := func(method, path string, body []byte, want int, into any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s %s: %d %s (%v), want %d", method, path, resp.StatusCode, data, err, want)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	list := func(want int) {
		t.Helper()
		var engines v1.EngineList
		request(http.MethodGet, path, nil, http.StatusOK, &engines)
		if len(engines.Items) != want || engines.Kind != "EngineList" || engines.ResourceVersion == "" {
			t.Errorf("list: %d items, kind %q, resourceVersion %q; want %d, EngineList, some", len(engines.Items), engines.Kind, engines.ResourceVersion, want)
		}
	}

	obj := engineCase.object(t, "w")
	obj.SetLabels(map[string]string{"sample-label": "true"})
	sent, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var created v1.Engine
	request(http.MethodPost, path, sent, http.StatusCreated, &created)
	if created.APIVersion != obj.GetAPIVersion() || created.Kind != "Engine" || created.Name != "w" || created.Labels["sample-label"] != "true" {
		t.Errorf("created: %s %s %s with labels %v, want what was sent", created.APIVersion, created.Kind, created.Name, created.Labels)
	}
	list(1)
	var status metav1.Status
	request(http.MethodDelete, path+"/w", nil, http.StatusOK, &status)
	if status.Status != metav1.StatusSuccess || status.Details == nil || status.Details.UID != created.UID {
		t.Errorf("answer to the deletion: %+v, want Success with the UID of the object", status)
	}
	list(0)
}

// TestEnginePreferred: clients that look for the preferred resources, as the garbage collector does, find it without an
// error, and can create, list and delete it by what they found, again and again.
func TestEnginePreferred(t *testing.T) {
	preferred, err := discovery.ServerPreferredNamespacedResources(adminClient(t, shared).Discovery())
	if err != nil {
		t.Fatalf("preferred resources of the cluster: %v", err)
	}
	found, err := discovery.GroupVersionResources(preferred)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := found[engineCase.resource]; !ok {
		var ours []schema.GroupVersionResource
		for resource := range found {
			if resource.Group == engineCase.resource.Group {
				ours = append(ours, resource)
			}
		}
		t.Fatalf("preferred resources of the group: %v, want %v among them", ours, engineCase.resource)
	}

	client := engineCase.client(t, adminConfig(t, shared), newNamespace(t, shared))
	count := func(want int) {
		t.Helper()
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != want || list.GetResourceVersion() == "" {
			t.Fatalf("list: %v, error %v; want %d objects and a resourceVersion", list, err, want)
		}
	}
	for range 2 {
		if _, err := client.Create(t.Context(), engineCase.object(t, "w"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		count(1)
		if err := client.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		count(0)
	}
	if err := client.Delete(t.Context(), "w", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete what is gone: %v, want NotFound", err)
	}
}
