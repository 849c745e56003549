// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"

	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/test/fixture/api/v1"
)

// formCBOR is switched on by a feature gate (KEP-4222). Each object begins with the tag of self-described CBOR (RFC 8949, 3.4.6).
var formCBOR = form{"CBOR", runtime.ContentTypeCBOR, "\xd9\xd9\xf7", runtime.ContentTypeCBORSequence}

func init() {
	flaggedTopics = append(flaggedTopics, flaggedTopic{"CBOR", func(*testing.T) ([]string, func(*testing.T, *envtest.Environment)) {
		return []string{"--feature-gates=CBORServingAndStorage=true"}, testEngineCBOR
	}})
}

// testEngineCBOR: with the gate on, CBOR is a form as any other, though kube-apiserver in front has its gate off; and what
// is stored stays protobuf.
func testEngineCBOR(t *testing.T, e *envtest.Environment) {
	w := newEngineForms(t, e, engineCase.resource.GroupVersion(), []form{forms[0], formCBOR})
	t.Run("forms", w.test)
	t.Run("apply", func(t *testing.T) {
		obj := runtime.DeepCopyJSON(w.sample)
		obj["metadata"] = map[string]any{"name": "applied"}
		body, err := cbor.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		header := formCBOR.accept("")
		header.Set("Content-Type", string(types.ApplyCBORPatchType))
		a := w.server.do(t, http.MethodPatch, w.collection+"/applied?fieldManager=test", header, body)
		if a.status != http.StatusCreated {
			t.Fatalf("apply: %d %s, want 201", a.status, a.body)
		}
		created := formCBOR.decode(t, a)
		managers, _, _ := unstructured.NestedSlice(created, "metadata", "managedFields")
		if diff := cmp.Diff(w.sample["spec"], created["spec"]); diff != "" || len(managers) != 1 || managers[0].(map[string]any)["operation"] != "Apply" {
			t.Errorf("managed fields %v, want one Apply; spec (-applied +created):\n%s", managers, diff)
		}
		storedAsProtobuf(t, e, "/engines/"+w.namespace+"/applied")
	})
	t.Run("metadata and errors", func(t *testing.T) {
		one := formCBOR.decode(t, w.server.get(t, w.collection+"/sample", formCBOR.accept(asMetadata)))
		if name, _, _ := unstructured.NestedString(one, "metadata", "name"); one["kind"] != "PartialObjectMetadata" || name != "sample" {
			t.Errorf("got %v, want the metadata of sample", one)
		}
		missing := w.server.do(t, http.MethodGet, w.collection+"/missing", formCBOR.accept(""), nil)
		if s := formCBOR.decode(t, missing); missing.status != http.StatusNotFound || s["reason"] != "NotFound" {
			t.Errorf("missing: %d %v, want 404 NotFound", missing.status, s)
		}
	})
	t.Run("client", func(t *testing.T) {
		preferCBOR(t)
		requests, client := w.clients(t)
		events, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=client"})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		// The numbers of the sample were read from YAML, as floating point ones; CBOR keeps the difference.
		obj := &unstructured.Unstructured{Object: contentOf(t, w.typed(t, "client"))}
		created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, events, watch.Added, created)
		if _, err := client.Apply(t.Context(), "client", obj, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Error(err)
		}
		want := []string{" application/cbor-seq", "application/cbor application/cbor", "application/apply-patch+cbor application/cbor"}
		if diff := cmp.Diff(want, *requests); diff != "" {
			t.Errorf("forms of requests and answers (-want +got):\n%s", diff)
		}
	})
}

// TestEngineWithoutCBOR: a client that prefers CBOR can work with our server as it is by default: it reads JSON, and from
// its first refused write on it writes JSON.
func TestEngineWithoutCBOR(t *testing.T) {
	preferCBOR(t)
	w := engineForms{e: shared, namespace: newNamespace(t, shared)}
	t.Run("dynamic", func(t *testing.T) {
		requests, client := w.clients(t)
		list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: "a,!a"})
		if err != nil || list.GetKind() != "EngineList" {
			t.Errorf("list: %v (%v), want a EngineList", list, err)
		}
		create := func() error {
			_, err := client.Create(t.Context(), engineCase.object(t, "w"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		if err := create(); !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("first create: %v, want UnsupportedMediaType", err)
		}
		if err := create(); err != nil {
			t.Errorf("second create: %v, want it to be written in JSON", err)
		}
		if diff := cmp.Diff([]string{" application/json", "application/cbor application/json", "application/json application/json"}, *requests); diff != "" {
			t.Errorf("forms of requests and answers (-want +got):\n%s", diff)
		}
	})
	t.Run("typed", func(t *testing.T) {
		config := adminConfig(t, shared)
		config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", new(v1.SchemeGroupVersion), codecs.WithoutConversion()
		client, err := rest.RESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		var list v1.EngineList
		if err := client.Get().Namespace(w.namespace).Resource("engines").Param("labelSelector", "a,!a").Do(t.Context()).Into(&list); err != nil {
			t.Errorf("list: %v", err)
		}
		engine := &v1.Engine{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(engineCase.object(t, "w").Object, engine); err != nil {
			t.Fatal(err)
		}
		create := func() error {
			return client.Post().Namespace(w.namespace).Resource("engines").Param("dryRun", "All").Body(engine).Do(t.Context()).Error()
		}
		if err := create(); !apierrors.IsUnsupportedMediaType(err) {
			t.Errorf("first create: %v, want UnsupportedMediaType", err)
		}
		if err := create(); err != nil {
			t.Errorf("second create: %v, want it to be written in JSON", err)
		}
	})
}

// preferCBOR makes clients that are made later in the test write CBOR. It is a switch of the process: tests that use it
// cannot be parallel.
func preferCBOR(t *testing.T) {
	t.Helper()
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
}

// clients returns a dynamic client, and what was sent and answered by it so far: "CONTENT-TYPE CONTENT-TYPE".
func (w engineForms) clients(t *testing.T) (*[]string, dynamic.ResourceInterface) {
	t.Helper()
	var requests []string
	config := adminConfig(t, w.e)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				requests = append(requests, req.Header.Get("Content-Type")+" "+resp.Header.Get("Content-Type"))
			}
			return resp, err
		})
	})
	return &requests, engineCase.client(t, config, w.namespace)
}
