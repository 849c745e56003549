// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/extension-apiserver/pkg/envtest"
	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// FuzzPatches checks that no patch of any type gets a 5xx response, for any kind, subresource and
// version. The values of an accepted patch are stored as sent, and a strategic merge patch is
// merged as the library merges it. The patches are dry runs, which leave the objects unchanged.
func FuzzPatches(f *testing.F) {
	server, targets := patchTargets(f)
	scheme := runtime.NewScheme()
	utilruntime.Must(install.AddToScheme(scheme))
	for i := range byte(48) {
		f.Add([]byte{i, i * 7, i * 13, i * 29, i, 5, 200, i * 3, i * 11, i * 5})
	}
	patchTypes := []types.PatchType{types.StrategicMergePatchType, types.ApplyYAMLPatchType, types.MergePatchType,
		types.JSONPatchType}
	f.Fuzz(func(t *testing.T, choices []byte) {
		m := &mutator{choices: choices}
		target := targets[m.choose(len(targets))]
		patchType := patchTypes[m.choose(len(patchTypes))]
		body, err := json.Marshal(m.patch(target.object, patchType))
		if err != nil {
			t.Fatal(err)
		}
		uri := target.path + "?dryRun=All&fieldValidation=Strict"
		if patchType == types.ApplyYAMLPatchType {
			uri += "&force=true&fieldManager=fuzz"
		}
		response := server.Do(t, http.MethodPatch, uri, http.Header{"Content-Type": {string(patchType)}}, body)
		var got map[string]any
		if err := utiljson.Unmarshal(response.Body, &got); err != nil || response.Status >= 500 || response.Status >= 300 &&
			got["kind"] != "Status" {
			t.Fatalf("%s %s %s: %d %s", patchType, target.path, body, response.Status, response.Body)
		}
		if response.Status >= 300 || patchType == types.JSONPatchType {
			return
		}
		var sent map[string]any
		if err := utiljson.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		if where := notStored(target.part, withNumbers(t, body)[target.part], got[target.part]); where != "" {
			t.Fatalf("%s is not stored as it was sent: %s %s %s: %s", where, patchType, target.path, body, response.Body)
		}
		if patchType != types.StrategicMergePatchType || path.Base(target.path) == "scale" {
			return
		}
		if want := merge(t, scheme, target.object, sent)[target.part]; !reflect.DeepEqual(want, got[target.part]) {
			t.Fatalf("got %v, the library merges to %v: %s %s: %s", got[target.part], want, target.path,
				body, response.Body)
		}
	})
}

// patchTarget is a resource or a subresource in a version, with its object and the part of it
// that a patch can change.
type patchTarget struct {
	path   string
	object map[string]any
	part   string
}

// patchTargets creates an object of each kind, and returns the targets.
func patchTargets(f *testing.F) (envtest.Endpoint, []patchTarget) {
	f.Helper()
	server := envtest.NewEndpoint(f, shared.Servers[0].ConfigAs(shared, shared.Admin(f)))
	namespace := shared.NewNamespace(f)
	var targets []patchTarget
	for _, k := range kindCases {
		object := k.object(f, uniqueName(f))
		body, err := object.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		name := object.GetName()
		server.Must(f, http.MethodPost, k.collection(k.resource.GroupVersion(), namespace),
			http.Header{"Content-Type": {"application/json"}}, body)
		f.Cleanup(func() {
			if err := k.client(f, shared.Admin(f), namespace).Delete(context.WithoutCancel(f.Context()), name,
				metav1.DeleteOptions{}); err != nil {
				f.Errorf("delete what was patched: %v", err)
			}
		})
		for _, gv := range install.GroupVersions() {
			at := path.Join(k.collection(gv, namespace), name)
			for subresource, part := range map[string]string{"": "spec", "status": "status", "scale": "spec"} {
				response := server.Do(f, http.MethodGet, path.Join(at, subresource), nil, nil)
				if response.Status == http.StatusNotFound {
					continue
				}
				var object map[string]any
				if err := utiljson.Unmarshal(response.Body, &object); err != nil || response.Status != http.StatusOK {
					f.Fatalf("get %s: %d %s", path.Join(at, subresource), response.Status, response.Body)
				}
				targets = append(targets, patchTarget{path.Join(at, subresource), object, part})
			}
		}
	}
	slices.SortFunc(targets, func(a, b patchTarget) int { return strings.Compare(a.path, b.path) })
	return server, targets
}

// collection returns the path of the kind's objects in a version.
func (k kindCase) collection(gv schema.GroupVersion, namespace string) string {
	if k.namespaced {
		return path.Join("/apis", gv.String(), "namespaces", namespace, k.resource.Resource)
	}
	return path.Join("/apis", gv.String(), k.resource.Resource)
}

// merge returns the result of the library's merge, with defaults.
func merge(t *testing.T, scheme *runtime.Scheme, object, patch map[string]any) map[string]any {
	t.Helper()
	typed, err := scheme.New(schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	// The library starts with the unstructured conversion of a typed object.
	converter := runtime.DefaultUnstructuredConverter
	if err := converter.FromUnstructured(object, typed); err != nil {
		t.Fatal(err)
	}
	original, err := converter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(original, patch, typed)
	if err != nil {
		t.Fatal(err)
	}
	result := reflect.New(reflect.TypeOf(typed).Elem()).Interface().(runtime.Object)
	if err := converter.FromUnstructured(merged, result); err != nil {
		t.Fatal(err)
	}
	scheme.Default(result)
	fields, err := converter.ToUnstructured(result)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// notStored returns the path of a scalar of the patch that is not in the object. It returns "" if
// there is none or if the patch has directives. It finds elements of lists by their key.
func notStored(path string, sent, stored any) string {
	switch sent := sent.(type) {
	case nil:
		return "" // null deletes the field
	case map[string]any:
		for key := range sent {
			if strings.HasPrefix(key, "$") {
				return ""
			}
		}
		stored, _ := stored.(map[string]any)
		for key, v := range sent {
			if where := notStored(path+"."+key, v, stored[key]); where != "" {
				return where
			}
		}
		return ""
	case []any:
		stored, _ := stored.([]any)
		for i, v := range sent {
			element, isMap := v.(map[string]any)
			if !isMap {
				continue
			}
			for _, key := range []string{"name", "type"} {
				if element[key] == nil {
					continue
				}
				found := slices.IndexFunc(stored, func(v any) bool { return v.(map[string]any)[key] == element[key] })
				if found < 0 && element["$patch"] == nil {
					return path + "[" + string(rune('0'+i)) + "]"
				} else if found >= 0 && element["$patch"] == nil {
					if where := notStored(path, v, stored[found]); where != "" {
						return where
					}
				}
				break
			}
		}
		return ""
	}
	if number, ok := sent.(json.Number); ok {
		want, _ := new(big.Rat).SetString(number.String())
		got, ok := new(big.Rat).SetString(fmt.Sprint(stored))
		if want.Sign() == 0 || ok && got.Cmp(want) == 0 {
			return "" // a zero is omitted, or replaced by a default
		}
		return path
	}
	if sent == stored || reflect.ValueOf(sent).IsZero() {
		return ""
	}
	return path
}

// withNumbers decodes JSON and keeps numbers as they were written.
func withNumbers(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var content map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		t.Fatal(err)
	}
	return content
}

// mutator generates patches from a sequence of choices.
type mutator struct{ choices []byte }

func (m *mutator) choose(n int) int {
	if len(m.choices) == 0 {
		return 0
	}
	c := m.choices[0]
	m.choices = m.choices[1:]
	return int(c) % n
}

func (m *mutator) patch(object map[string]any, patchType types.PatchType) any {
	content := runtime.DeepCopyJSON(object)
	metadata := content["metadata"].(map[string]any)
	if patchType == types.JSONPatchType {
		operations := make([]any, 1+m.choose(3))
		for i := range operations {
			operations[i] = map[string]any{
				"op": m.of("replace", "add", "remove", "copy", "move", "test", "x"), "value": m.value(),
				"path": m.pointer(object), "from": m.pointer(object),
			}
		}
		return operations
	}
	content["metadata"] = map[string]any{"name": metadata["name"]}
	m.mutate(content, 0)
	for range m.choose(3) {
		m.mutate(content, 0)
	}
	return content
}

// pointer returns a JSON pointer into the object, and sometimes to a missing field.
func (m *mutator) pointer(object map[string]any) string {
	pointer, at := "", any(object)
	for range 1 + m.choose(4) {
		switch v := at.(type) {
		case map[string]any:
			if len(v) == 0 {
				return pointer + "/x"
			}
			key := m.key(v)
			pointer, at = pointer+"/"+key, v[key]
		case []any:
			pointer += "/" + m.of("0", "-", "99", "-1", "x").(string)
			if len(v) > 0 {
				at = v[0]
			}
		default:
			return pointer
		}
	}
	return pointer
}

func (m *mutator) of(values ...any) any { return values[m.choose(len(values))] }

func (m *mutator) key(object map[string]any) string {
	keys := slices.Sorted(maps.Keys(object))
	return keys[m.choose(len(keys))]
}

// mutate changes a field of the object, or of an object in it.
func (m *mutator) mutate(object map[string]any, depth int) {
	if len(object) == 0 {
		object["x"] = m.value()
		return
	}
	key := m.key(object)
	if depth < 5 && m.choose(8) != 0 {
		switch v := object[key].(type) {
		case map[string]any:
			m.mutate(v, depth+1)
			return
		case []any:
			if len(v) > 0 {
				i := m.choose(len(v))
				if element, ok := v[i].(map[string]any); ok && m.choose(4) != 0 {
					m.mutate(element, depth+1)
					return
				}
				v[i] = m.value()
				return
			}
		}
	}
	switch m.choose(12) {
	case 0:
		delete(object, key)
	case 1:
		object["$patch"] = m.of("replace", "delete", "merge", m.value())
	case 2:
		object["$retainKeys"] = m.of([]any{key}, m.value())
	case 3:
		object["$setElementOrder/"+key] = m.of(object[key], m.value())
	case 4:
		object["$deleteFromPrimitiveList/"+key] = m.of(object[key], m.value())
	case 5:
		object["$"+key] = m.value()
	case 6:
		object[key] = []any{object[key], m.value()}
	default:
		object[key] = m.value()
	}
}

func (m *mutator) value() any {
	return m.of("a", nil, int64(1), int64(4294967296), int64(-1), 1.5, 2.0, 1e19, true, []any{}, []any{nil},
		[]any{map[string]any{"name": []any{}}}, []any{"a", int64(1)},
		map[string]any{}, map[string]any{"name": map[string]any{"a": int64(1)}}, map[string]any{"a": "b"}, "",
		"two words", int64(9007199254740993), []any{map[string]any{"name": "a"}},
		json.Number("2.99999999999999999999"), json.Number("9007199254740993.0"), json.RawMessage(`"\ud800"`))
}
