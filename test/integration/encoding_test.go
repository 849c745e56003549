// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/test/fixture/install"
)

// TestEngineEncodings: in every version, a client may write in any of the forms and read in any other: it is the same
// object, and stored in the same way.
func TestEngineEncodings(t *testing.T) {
	for _, gv := range install.GroupVersions {
		if typedScheme.Recognizes(gv.WithKind("Engine")) {
			t.Run(gv.Version, func(t *testing.T) { newEngineForms(t, shared, gv, forms).test(t) })
		}
	}
}

// engineForms tests engines of one version in several forms.
type engineForms struct {
	e          *envtest.Environment
	server     endpoint
	gv         schema.GroupVersion
	namespace  string
	collection string
	forms      []form
	// sample is a valid engine in this version.
	sample map[string]any
}

func newEngineForms(t *testing.T, e *envtest.Environment, gv schema.GroupVersion, forms []form) engineForms {
	t.Helper()
	w := engineForms{e: e, server: aggregator(t, e), gv: gv, namespace: newNamespace(t, e), forms: forms}
	w.collection = fmt.Sprintf("/apis/%s/namespaces/%s/engines", gv, w.namespace)
	written, err := engineCase.client(t, adminConfig(t, e), w.namespace).Create(t.Context(), engineCase.object(t, "sample"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if missing := lost(engineCase.object(t, "sample").Object["spec"], written.Object["spec"], "spec"); missing != "" {
		t.Fatalf("of the sample %s was lost; stored is %v", missing, written.Object["spec"])
	}
	// The server says what the sample looks like in this version.
	var read unstructured.Unstructured
	if err := read.UnmarshalJSON(w.server.get(t, w.collection+"/sample", forms[0].accept("")).body); err != nil {
		t.Fatal(err)
	}
	w.sample = map[string]any{"apiVersion": gv.String(), "kind": "Engine", "spec": read.Object["spec"]}
	return w
}

// lost returns the path of something in want that got has not; got may have more, such as defaults.
func lost(want, got any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			if missing := lost(value, got[key], path+"."+key); missing != "" {
				return missing
			}
		}
	case []any:
		got, _ := got.([]any)
		for i, value := range want {
			if i >= len(got) {
				return fmt.Sprintf("%s[%d]", path, i)
			}
			if missing := lost(value, got[i], fmt.Sprintf("%s[%d]", path, i)); missing != "" {
				return missing
			}
		}
	default:
		// Of the numbers one side is floating point.
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return path
		}
	}
	return ""
}

// typed returns the sample under a name, as the type that a client has for this version.
func (w engineForms) typed(t *testing.T, name string) runtime.Object {
	t.Helper()
	obj, err := typedScheme.New(w.gv.WithKind("Engine"))
	if err != nil {
		t.Fatal(err)
	}
	content := runtime.DeepCopyJSON(w.sample)
	content["metadata"] = map[string]any{"name": name}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func (w engineForms) test(t *testing.T) {
	for i, written := range w.forms {
		for j, read := range w.forms {
			t.Run("written in "+written.name+", read in "+read.name, func(t *testing.T) {
				w.create(t, fmt.Sprintf("w-%d-%d", i, j), written, read)
			})
		}
	}
}

// create writes in one form, and does everything else that gives objects in another.
func (w engineForms) create(t *testing.T, name string, written, read form) {
	path := w.collection + "/" + name
	header := read.accept("")
	header.Set("Content-Type", written.mediaType)
	must := func(code int, method, path string, header http.Header, body []byte) map[string]any {
		t.Helper()
		a := w.server.do(t, method, path, header, body)
		if a.status != code {
			t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.body, code)
		}
		return read.decode(t, a)
	}
	created := must(http.StatusCreated, http.MethodPost, w.collection, header, written.encode(t, w.typed(t, name)))
	if diff := cmp.Diff(w.sample["spec"], created["spec"]); diff != "" {
		t.Errorf("spec (-written +read):\n%s", diff)
	}
	if diff := cmp.Diff(forms[0].decode(t, w.server.get(t, path, forms[0].accept(""))), created); diff != "" {
		t.Errorf("created (-in JSON +read):\n%s", diff)
	}
	if diff := cmp.Diff(created, must(http.StatusOK, http.MethodGet, path, read.accept(""), nil)); diff != "" {
		t.Errorf("get (-created +got):\n%s", diff)
	}
	selected := w.collection + "?fieldSelector=metadata.name%3D" + name
	list := must(http.StatusOK, http.MethodGet, selected, read.accept(""), nil)
	if diff := cmp.Diff([]any{listedItem(created)}, listedItems(list)); diff != "" {
		t.Errorf("list (-created +listed):\n%s", diff)
	}
	w.change(t, path, selected+"&watch=1&resourceVersion="+versionOf(created), created, written, read)
	storedAsProtobuf(t, w.e, "/engines/"+w.namespace+"/"+name)
}

// change updates and patches, and reads what a watch says of it.
func (w engineForms) change(t *testing.T, path, watchPath string, created map[string]any, written, read form) {
	t.Helper()
	var events rawWatch
	if read.stream != "" {
		events = read.watch(t, w.server, watchPath, "")
	} else if a := w.server.do(t, http.MethodGet, watchPath, read.accept(""), nil); a.status != http.StatusNotAcceptable {
		t.Errorf("watch in %s: %d, want 406", read.name, a.status)
	}
	if err := unstructured.SetNestedField(created, "updated", "metadata", "annotations", "test"); err != nil {
		t.Fatal(err)
	}
	obj := w.typed(t, "")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created, obj); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		method, contentType string
		body                []byte
		annotation          string
	}{
		{http.MethodPut, written.mediaType, written.encode(t, obj), "updated"},
		{http.MethodPatch, string(types.MergePatchType), []byte(`{"metadata":{"annotations":{"test":"patched"}}}`), "patched"},
	} {
		header := read.accept("")
		header.Set("Content-Type", step.contentType)
		a := w.server.do(t, step.method, path, header, step.body)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d %s, want 200", step.method, a.status, a.body)
		}
		changed := read.decode(t, a)
		if got, _, _ := unstructured.NestedString(changed, "metadata", "annotations", "test"); got != step.annotation {
			t.Errorf("%s: annotation %q, want %q", step.method, got, step.annotation)
		}
		if read.stream != "" {
			if diff := cmp.Diff(changed, events.next(t, watch.Modified)); diff != "" {
				t.Errorf("%s (-answer +watch):\n%s", step.method, diff)
			}
		}
	}
}

// listedItems are those of a list, and listedItem is an object as it stands in one: the list says what they are.
func listedItems(list map[string]any) []any {
	all, _, _ := unstructured.NestedSlice(list, "items")
	for i := range all {
		all[i] = listedItem(all[i].(map[string]any))
	}
	return all
}

func listedItem(obj map[string]any) map[string]any {
	obj = runtime.DeepCopyJSON(obj)
	delete(obj, "apiVersion")
	delete(obj, "kind")
	return obj
}

func versionOf(obj map[string]any) string {
	version, _, _ := unstructured.NestedString(obj, "metadata", "resourceVersion")
	return version
}

// statusOf reads a Status in JSON.
func statusOf(t *testing.T, a answer) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(a.body, &s); err != nil || s.Kind != "Status" {
		t.Fatalf("got %d %s (%v), want a Status", a.status, a.body, err)
	}
	return s
}
