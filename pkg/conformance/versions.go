// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// appliedAcross applies an element of a list as one manager, and another element as another
// manager in another version. The element of the first manager must not change and must remain
// owned by it. A conversion that folds fields of several elements into one field, such as an
// annotation, would lose it.
func (s *session) appliedAcross(version string) {
	definition, document := s.schema()
	field, key, element := s.keyedElement(definition, document)
	second := maps.Clone(element)
	second[key] = element[key].(string) + "-b"

	// The configuration of the second manager, as the other version represents it.
	example := s.object()
	_ = unstructured.SetNestedSlice(example.Object, []any{second}, field...)
	made := s.do("POST", s.collection(), body(example))
	if made.Code != 201 {
		s.skipf("an object with another %s is rejected: %s", key, made)
	}
	other := s.want(s.do("GET", s.in(version, s.created(made))), 200).object()

	name := s.name()
	apply := func(version string, obj *unstructured.Unstructured, manager string) *response {
		configuration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": obj.GetAPIVersion(),
			"kind": obj.GetKind(), "spec": obj.Object["spec"]}}
		configuration.SetName(name)
		configuration.SetNamespace(s.namespace)
		configuration.SetAnnotations(obj.GetAnnotations())
		_ = unstructured.SetNestedMap(configuration.Object, s.labels(), "metadata", "labels")
		return s.do("PATCH", s.in(version, configuration), typed(typeApply, configuration.Object),
			query("fieldManager", manager))
	}
	first := s.object()
	_ = unstructured.SetNestedSlice(first.Object, []any{element}, field...)
	before := s.created(s.want(apply(s.r.discovered.gvr.Version, first, "first"), 201))
	if a := apply(version, other, "second"); a.Code == 409 {
		return // a conflict loses nothing
	} else {
		s.want(a, 200)
	}
	after := s.get(before)
	find := func(obj *unstructured.Unstructured) any {
		list, _, _ := unstructured.NestedSlice(obj.Object, field...)
		i := slices.IndexFunc(list, func(v any) bool { e, _ := v.(map[string]any); return e[key] == element[key] })
		if i < 0 {
			return nil
		}
		return list[i]
	}
	if was, is := find(before), find(after); !reflect.DeepEqual(was, is) {
		s.errorf("after an apply in %s, the element of another manager is %v, and was %v", version, is, was)
	}
	if was, is := s.managed(before, "first", "Apply"), s.managed(after, "first", "Apply"); !reflect.DeepEqual(
		was.FieldsV1, is.FieldsV1) {
		s.errorf("after an apply in %s, another manager owns %s, and owned %s", version, is.FieldsV1, was.FieldsV1)
	}
}

// keyedElement returns a list in the spec of the sample that is merged by one key, the key, and
// the element with the most fields.
func (s *session) keyedElement(definition,
	document map[string]any) (field []string, key string, element map[string]any) {
	spec, _, _ := unstructured.NestedMap(definition, "properties", "spec")
	properties, _ := resolve(document, spec)["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, _ := properties[name].(map[string]any)
		keys, _, _ := unstructured.NestedStringSlice(property, "x-kubernetes-list-map-keys")
		list, _, _ := unstructured.NestedSlice(s.r.target.Sample.Object, "spec", name)
		if len(keys) != 1 {
			continue
		}
		for _, v := range list {
			e, _ := v.(map[string]any)
			if _, ok := e[keys[0]].(string); ok && len(e) > len(element) {
				field, key, element = []string{"spec", name}, keys[0], e
			}
		}
	}
	if element == nil {
		s.skipf("the spec of the sample has no list that is merged by one key")
	}
	return field, key, element
}
