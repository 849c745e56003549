// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// FuzzStrategic checks that the library merges each patch that Strategic accepts into any object
// without a panic and without an error that has no status, and that the merged object is stored
// unchanged.
func FuzzStrategic(f *testing.F) {
	for i, patch := range fitting {
		f.Add([]byte{byte(i), 7, 1, 200, byte(i), 31}, patch)
	}
	for i, tc := range unfitting {
		f.Add([]byte{byte(i), 3, 90, 4, 17}, tc.patch)
	}
	f.Fuzz(func(t *testing.T, choices []byte, text string) {
		g := &generator{choices: choices}
		original := g.value(objectType, 0, true).(map[string]any)
		// The object is what the library makes of a stored object: first typed, and then a map.
		var stored object
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(original, &stored); err != nil {
			t.Skip()
		}
		original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&stored)
		if err != nil {
			t.Skip()
		}
		patches := []map[string]any{g.value(objectType, 0, false).(map[string]any)}
		var decoded map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &decoded); err == nil {
			patches = append(patches, decoded)
		}
		for _, patch := range patches {
			merged(t, original, patch)
		}
	})
}

// merged fails the test if the library cannot merge an accepted patch.
func merged(t *testing.T, original, patch map[string]any) {
	t.Helper()
	if _, errs := Strategic(patch, nil, objectType); len(errs) > 0 {
		return
	}
	sent := describe(patch)
	result, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(original), patch, &object{})
	if err != nil {
		// The last three errors have a status.
		if !Mismatch(err.Error()) && !errors.Is(err, mergepatch.ErrNoListOfLists) &&
			!errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys) &&
			!errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList) {
			t.Fatalf("merge %s into %s: %v", sent, describe(original), err)
		}
		return
	}
	var typed object
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result, &typed); err != nil {
		return // which has the status 422
	}
	stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		t.Fatalf("convert the result of %s: %v", sent, err)
	}
	if where := changed(nil, map[string]any(result), stored, objectType); where != "" {
		t.Fatalf("merge %s into %s: %s", sent, describe(original), where)
	}
}

// changed describes where a stored value differs from the merged value. Zero values may be
// omitted.
func changed(path *field.Path, merged, stored any, t reflect.Type) string {
	t = element(t)
	if custom(t) || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 || merged == nil {
		return "" // a value with several representations
	}
	differs := fmt.Sprintf("%s is stored as %v, and was merged to %v", path, stored, merged)
	switch merged := merged.(type) {
	case map[string]any:
		stored, _ := stored.(map[string]any)
		for key, v := range merged {
			elem, at := reflect.Type(nil), child(path, key)
			if t.Kind() == reflect.Map {
				elem = t.Elem()
			} else if f, ok := fieldsOf(t)[key]; ok {
				elem = f.typ
			} else {
				continue // unknown field
			}
			if where := changed(at, v, stored[key], elem); where != "" {
				return where
			}
		}
	case []any:
		stored, _ := stored.([]any)
		if len(stored) != len(merged) {
			return differs
		}
		for i, v := range merged {
			if where := changed(path.Index(i), v, stored[i], t.Elem()); where != "" {
				return where
			}
		}
	default:
		if stored == nil && reflect.ValueOf(merged).IsZero() {
			return ""
		}
		if number, ok := asFloat(merged); ok {
			want := reflect.ValueOf(number)
			if t.Kind() == reflect.Float32 {
				want = reflect.ValueOf(float64(float32(number)))
			}
			if got, ok := asFloat(stored); ok && got == want.Float() {
				return ""
			}
			if want.Float() == 0 && stored == nil {
				return ""
			}
			return differs
		}
		if merged != stored {
			return differs
		}
	}
	return ""
}

func describe(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}

func asFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// generator generates values from choices.
type generator struct{ choices []byte }

func (g *generator) choose(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := g.choices[0]
	g.choices = g.choices[1:]
	return int(c) % n
}

var scalars = []any{"a", int64(1), "b", true, float64(1), 1.5, int64(4294967296), "c", int64(-1), 1e19, "1Gi",
	int64(300), false, ""}

// value returns a value for the type, or one that often does not match it.
func (g *generator) value(t reflect.Type, depth int, fit bool) any {
	t = element(t)
	if !fit && depth > 0 && g.choose(8) == 7 {
		return g.anything()
	}
	switch {
	case custom(t):
		return map[string]any{"IntOrString": int64(80), "Quantity": "1Gi", "Time": "2026-01-01T00:00:00Z"}[t.Name()]
	case t.Kind() == reflect.Struct:
		return g.structure(t, depth, fit)
	case t.Kind() == reflect.Map:
		object := map[string]any{}
		for range g.choose(3) {
			object[[]string{"a", "b", "$patch", "$retainKeys"}[g.choose(
				map[bool]int{true: 2, false: 4}[fit])]] = g.value(t.Elem(), depth+1, fit)
		}
		return object
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "aGk="
	case t.Kind() == reflect.Slice:
		var list []any
		for range g.choose(4) {
			list = append(list, g.value(t.Elem(), depth+1, fit))
		}
		return list
	case t.Kind() == reflect.String:
		return []any{"a", "b", "c"}[g.choose(3)]
	case t.Kind() == reflect.Bool:
		return true
	case isFloat(t):
		return 1.5
	}
	return int64(g.choose(4))
}

func (g *generator) structure(t reflect.Type, depth int, fit bool) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(fieldsOf(t))) {
		f := fieldsOf(t)[name]
		if depth > 3 || g.choose(3) != 1 {
			continue
		}
		object[name] = g.value(f.typ, depth+1, fit)
		if fit {
			continue
		}
		switch g.choose(12) {
		case 7:
			object[orderDirective+"/"+name] = g.value(f.typ, depth+1, fit)
		case 8:
			object[deleteDirective+"/"+name] = g.value(f.typ, depth+1, fit)
		case 9:
			object[patchDirective] = []any{"replace", "delete", "merge"}[g.choose(3)]
		case 10:
			object[retainKeysDirective] = []any{name, "name"}
		case 11:
			object[orderDirective+"/"+name] = object[name]
		}
	}
	return object
}

func (g *generator) anything() any {
	switch g.choose(4) {
	case 0:
		return nil
	case 1:
		return []any{g.scalar()}
	case 2:
		return map[string]any{"a": g.scalar()}
	}
	return g.scalar()
}

func (g *generator) scalar() any { return scalars[g.choose(len(scalars))] }
