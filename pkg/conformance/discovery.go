// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// inGroup requires a resource with a group.
func inGroup(f *discovered, _ *Target) string {
	if f.gvr.Group == "" {
		return "the resource has no group"
	}
	return ""
}

// decoded decodes the body of a response with status 200.
func (s *session) decoded(a *response, into any) {
	if err := json.Unmarshal(s.want(a, 200).Body, into); err != nil {
		s.fatalf("%s: the body is %.300q: %v", a.request, a.Body, err)
	}
}

// aggregated returns the entry of the resource in aggregated discovery.
func (s *session) aggregated() map[string]any {
	root := "/apis"
	if s.r.discovered.gvr.Group == "" {
		root = "/api"
	}
	a := s.want(s.do("GET", root, accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")), 200)
	groups, _, _ := unstructured.NestedSlice(a.object().Object, "items")
	for _, g := range groups {
		group, _ := g.(map[string]any)
		if (&unstructured.Unstructured{Object: group}).GetName() != s.r.discovered.gvr.Group {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(group, "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			resources, _, _ := unstructured.NestedSlice(version, "resources")
			for _, r := range resources {
				if resource, _ := r.(map[string]any); version["version"] == s.r.discovered.gvr.Version &&
					resource["resource"] == s.r.discovered.gvr.Resource {
					return resource
				}
			}
		}
	}
	s.fatalf("%s: the resource is not among the %d groups", a.request, len(groups))
	return nil
}

var discoveryChecks = []Check{
	{"discovery/group", Required, concepts, "/apis has the group with its versions and a preferred version.",
		[]need{inGroup}, func(s *session) {
			list := metav1.APIGroupList{}
			s.decoded(s.do("GET", "/apis"), &list)
			for _, group := range list.Groups {
				if group.Name != s.r.discovered.gvr.Group {
					continue
				}
				if !slices.ContainsFunc(group.Versions,
					func(v metav1.GroupVersionForDiscovery) bool { return v.GroupVersion == s.apiVersion() }) ||
					!slices.Contains(group.Versions, group.PreferredVersion) {
					s.errorf("got %+v, want %s, and a preferred version among the versions", group, s.apiVersion())
				}
				return
			}
			s.errorf("the group does not exist")
		}},
	{"discovery/single-group", Required, concepts, "/apis/GROUP has the same group.", []need{inGroup}, func(s *session) {
		all, one := metav1.APIGroupList{}, metav1.APIGroup{}
		s.decoded(s.do("GET", "/apis"), &all)
		s.decoded(s.do("GET", "/apis/"+s.r.discovered.gvr.Group), &one)
		for _, group := range all.Groups {
			if group.Name == one.Name && (fmt.Sprint(group.Versions) != fmt.Sprint(one.Versions) ||
				group.PreferredVersion != one.PreferredVersion) {
				s.errorf("got %+v, and %+v in /apis", one, group)
			}
		}
	}},
	{"discovery/resource", Required, conventions, "The resource has a kind, a singular name, and verbs.", nil,
		func(s *session) {
			r := s.r.discovered.resource
			if r.Kind == "" || len(r.Verbs) == 0 || r.SingularName == "" {
				s.errorf("got kind %q, singular %q, verbs %q", r.Kind, r.SingularName, r.Verbs)
			}
			if r.Name != strings.ToLower(r.Name) {
				s.errorf("the name of the resource is %q, want lower case", r.Name)
			}
		}},
	{"discovery/verbs", Required, concepts,
		"A verb in discovery does not return 405. A verb that is not in discovery returns 405 or 404.", nil,
		func(s *session) {
			s.apart()
			name := s.collection() + "/" + s.name()
			for verb, try := range map[string]func() *response{
				"get":  func() *response { return s.do("GET", name) },
				"list": func() *response { return s.list() },
				"create": func() *response {
					return s.do("POST", s.collection(), body(s.object()),
						query("dryRun", "All"))
				},
				"update": func() *response { return s.do("PUT", name, body(s.object()), query("dryRun", "All")) },
				"patch": func() *response {
					return s.do("PATCH", name, mergePatch(map[string]any{}),
						query("dryRun", "All"))
				},
				"delete": func() *response { return s.do("DELETE", name, query("dryRun", "All")) },
				"deletecollection": func() *response {
					return s.deleteCollection(query("labelSelector", s.selector()), query("dryRun", "All"))
				},
			} {
				if verb == "deletecollection" && confined(s.r.discovered, s.r.target) != "" {
					continue
				}
				named := slices.Contains(s.r.discovered.resource.Verbs, verb)
				if a := try(); named && a.Code == 405 || !named && a.Code != 405 && a.Code != 404 {
					s.errorf("discovery has the verb %s: %t, and %s returned %s", verb, named, a.request, a)
				}
			}
		}},
	{"discovery/short-names", Recommended, conventions,
		"No other resource of the group has the same short name or singular name.", nil, func(s *session) {
			list := metav1.APIResourceList{}
			s.decoded(s.do("GET", s.groupPath(s.r.discovered.gvr.Version)), &list)
			owners := map[string]string{}
			for _, r := range list.APIResources {
				if strings.Contains(r.Name, "/") {
					continue
				}
				for _, name := range append(slices.Clone(r.ShortNames), r.SingularName) {
					if other, ok := owners[name]; ok && name != "" && other != r.Name &&
						(other == s.r.discovered.gvr.Resource || r.Name == s.r.discovered.gvr.Resource) {
						s.errorf("%s and %s are both %q", other, r.Name, name)
					}
					owners[name] = r.Name
				}
			}
		}},
	{"discovery/subresources", Required, concepts, "Each readable subresource responds for an object.",
		[]need{verbs("create")}, func(s *session) {
			obj := s.create()
			for _, name := range slices.Sorted(maps.Keys(s.r.discovered.subresources)) {
				sub := s.r.discovered.subresources[name]
				if !slices.Contains(sub.Verbs, "patch") {
					continue // a stream, or a subresource that only creates
				}
				if a := s.do("GET", s.path(obj)+"/"+name); a.Code != 200 || a.object().GetKind() != sub.Kind {
					s.errorf("%s: got %s, want a %s", a.request, a, sub.Kind)
				}
			}
		}},
	{"discovery/unknown-resource", Required, concepts, "An unknown resource returns 404.", nil, func(s *session) {
		s.want(s.permitted(s.do("GET", s.groupPath(s.r.discovered.gvr.Version)+"/nosuchresources")), 404)
	}},
	{"discovery/unknown-version", Required, concepts, "An unknown version returns 404.", nil, func(s *session) {
		s.want(s.permitted(s.do("GET", s.collectionIn("v0nosuch", s.namespace))), 404)
	}},
	{"discovery/unknown-subresource", Required, concepts, "An unknown subresource returns 404.",
		[]need{verbs("create")}, func(s *session) {
			s.want(s.do("GET", s.path(s.create())+"/nosuchsubresource"), 404)
		}},
	{"discovery/while-watching", Required, concepts,
		"Discovery responds within 5 s while 200 watches are open on the same connection.",
		[]need{verbs("list", "watch")}, func(s *session) {
			version := s.now()
			for range 200 {
				s.watchOwn(version, query("timeoutSeconds", "60"))
			}
			for _, path := range []string{"/apis", s.groupPath(s.r.discovered.gvr.Version)} {
				began := time.Now()
				s.want(s.do("GET", path), 200)
				if took := time.Since(began); took > 5*time.Second {
					s.errorf("GET %s took %s", path, took.Round(time.Millisecond))
				}
			}
		}},
	{"discovery/aggregated", Required, kep("3352-aggregated-discovery"),
		"Aggregated discovery has the resource, with the same kind, scope, names and verbs.", nil, func(s *session) {
			got, want := s.aggregated(), s.r.discovered.resource
			scope := map[bool]string{true: "Namespaced", false: "Cluster"}[want.Namespaced]
			kind, _, _ := unstructured.NestedString(got, "responseKind", "kind")
			verbs, _, _ := unstructured.NestedStringSlice(got, "verbs")
			shorts, _, _ := unstructured.NestedStringSlice(got, "shortNames")
			have := slices.Sorted(slices.Values(verbs))
			if got["scope"] != scope || kind != want.Kind || got["singularResource"] != want.SingularName ||
				!slices.Equal(have, slices.Sorted(slices.Values(want.Verbs))) ||
				!slices.Equal(shorts, want.ShortNames) {
				s.errorf("got %v, want what %s has: %+v", got, s.groupPath(s.r.discovered.gvr.Version), want)
			}
		}},
	{"discovery/aggregated-subresources", Required, kep("3352-aggregated-discovery"),
		"Aggregated discovery has the same subresources.", nil, func(s *session) {
			var got []string
			subresources, _, _ := unstructured.NestedSlice(s.aggregated(), "subresources")
			for _, sub := range subresources {
				name, _, _ := unstructured.NestedString(sub.(map[string]any), "subresource")
				got = append(got, name)
			}
			if want := slices.Sorted(maps.Keys(s.r.discovered.subresources)); !slices.Equal(
				slices.Sorted(slices.Values(got)), want) {
				s.errorf("got %q, want %q", got, want)
			}
		}},
}

// documentURL returns the URL of the OpenAPI v3 document of the version.
func (s *session) documentURL() string {
	path := strings.TrimPrefix(s.groupPath(s.r.discovered.gvr.Version), "/")
	index := struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}{}
	s.decoded(s.do("GET", "/openapi/v3"), &index)
	entry, ok := index.Paths[path]
	if !ok {
		s.fatalf("/openapi/v3 has no document for %s", path)
	}
	return entry.ServerRelativeURL
}

// schema returns the schema of the kind in OpenAPI v3 and the document that contains it.
func (s *session) schema() (definition map[string]any, document map[string]any) {
	s.decoded(s.do("GET", s.documentURL()), &document)
	schemas, _, _ := unstructured.NestedMap(document, "components", "schemas")
	for _, value := range schemas {
		candidate, _ := value.(map[string]any)
		kinds, _, _ := unstructured.NestedSlice(candidate, "x-kubernetes-group-version-kind")
		for _, k := range kinds {
			if gvk, _ := k.(map[string]any); gvk["kind"] == s.kind() && gvk["group"] == s.r.discovered.gvr.Group &&
				gvk["version"] == s.r.discovered.gvr.Version {
				return candidate, document
			}
		}
	}
	s.fatalf("the document has no schema with x-kubernetes-group-version-kind of %s", s.kind())
	return nil, nil
}

// resolve follows a reference, alone or in allOf.
func resolve(document, schema map[string]any) map[string]any {
	for range 5 {
		ref, _ := schema["$ref"].(string)
		if all, ok := schema["allOf"].([]any); ok && len(all) == 1 {
			ref, _ = all[0].(map[string]any)["$ref"].(string)
		}
		if ref == "" {
			return schema
		}
		target, _, _ := unstructured.NestedMap(document, "components", "schemas", ref[strings.LastIndex(ref, "/")+1:])
		schema = target
	}
	return schema
}

// undescribed returns the paths of the fields of a value that the schema does not have.
func undescribed(document, schema map[string]any, value any, path string) (out []string) {
	schema = resolve(document, schema)
	switch value := value.(type) {
	case map[string]any:
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			return nil // a map, or any value
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			property, ok := properties[name].(map[string]any)
			if !ok {
				out = append(out, path+"."+name)
				continue
			}
			out = append(out, undescribed(document, property, value[name], path+"."+name)...)
		}
	case []any:
		items, ok := schema["items"].(map[string]any)
		for _, element := range value {
			if ok {
				out = append(out, undescribed(document, items, element, path+"[]")...)
			}
		}
	}
	return out
}

// dangling returns the references in a document that do not refer to any of the definitions.
func dangling(document any, prefix string, definitions map[string]any) []string {
	missing := map[string]bool{}
	values := []any{document}
	for len(values) > 0 {
		value := values[len(values)-1]
		values = values[:len(values)-1]
		switch value := value.(type) {
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok {
				name, local := strings.CutPrefix(ref, prefix)
				name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
				if _, ok := definitions[name]; local && !ok {
					missing[name] = true
				}
			}
			values = slices.AppendSeq(values, maps.Values(value))
		case []any:
			values = append(values, value...)
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

var openAPIChecks = []Check{
	{"openapi/v3", Required, openapis, "OpenAPI v3 has a document for the version, with the paths of the resource.",
		nil, func(s *session) {
			_, document := s.schema()
			paths, _, _ := unstructured.NestedMap(document, "paths")
			want := s.groupPath(s.r.discovered.gvr.Version) + "/"
			if s.r.discovered.resource.Namespaced {
				want += "namespaces/{namespace}/"
			}
			wanted := []string{want + s.r.discovered.gvr.Resource}
			if slices.Contains(s.r.discovered.resource.Verbs, "get") {
				wanted = append(wanted, wanted[0]+"/{name}")
			}
			for _, path := range wanted {
				if _, ok := paths[path]; !ok {
					s.errorf("the document has no path %s", path)
				}
			}
		}},
	{"openapi/references", Required, openapis,
		"Each reference in OpenAPI v2 and v3 resolves. A broken reference breaks clients for the whole cluster.",
		nil, func(s *session) {
			v2, v3 := map[string]any{}, map[string]any{}
			s.decoded(s.do("GET", "/openapi/v2"), &v2)
			s.decoded(s.do("GET", s.documentURL()), &v3)
			definitions, _ := v2["definitions"].(map[string]any)
			schemas, _, _ := unstructured.NestedMap(v3, "components", "schemas")
			for _, ref := range dangling(v2, "#/definitions/", definitions) {
				s.errorf("OpenAPI v2 has no definition %s", ref)
			}
			for _, ref := range dangling(v3, "#/components/schemas/", schemas) {
				s.errorf("OpenAPI v3 has no schema %s", ref)
			}
		}},
	{"openapi/kinds", Required, openapis,
		"Each kind of the version has a definition with its group, version and kind. No definition belongs to an " +
			"internal version.", nil, func(s *session) {
			_, document := s.schema()
			schemas, _, _ := unstructured.NestedMap(document, "components", "schemas")
			described := map[string]bool{}
			for name, value := range schemas {
				candidate, _ := value.(map[string]any)
				kinds, _, _ := unstructured.NestedSlice(candidate, "x-kubernetes-group-version-kind")
				for _, k := range kinds {
					gvk, _ := k.(map[string]any)
					if gvk["version"] == "__internal" {
						s.errorf("the schema %s has the version __internal", name)
					}
					if gvk["group"] == s.r.discovered.gvr.Group && gvk["version"] == s.r.discovered.gvr.Version {
						described[fmt.Sprint(gvk["kind"])] = true
					}
				}
			}
			list := metav1.APIResourceList{}
			s.decoded(s.do("GET", s.groupPath(s.r.discovered.gvr.Version)), &list)
			for _, r := range list.APIResources {
				own := (r.Group == "" || r.Group == s.r.discovered.gvr.Group) &&
					(r.Version == "" || r.Version == s.r.discovered.gvr.Version)
				if own && !strings.Contains(r.Name, "/") && !described[r.Kind] {
					s.errorf("no schema has the kind %s", r.Kind)
				}
			}
		}},
	{"openapi/v3-fields", Required, openapis, "The schema has every field of an object.", []need{verbs("create")},
		func(s *session) {
			definition, document := s.schema()
			if missing := undescribed(document, definition, s.get(s.create()).Object, ""); len(missing) > 0 {
				s.errorf("the schema has no %s", strings.Join(slices.Compact(missing), ", "))
			}
		}},
	{"openapi/v3-descriptions", Recommended, conventions,
		"The kind and its fields have descriptions, for kubectl explain.",
		nil, func(s *session) {
			definition, document := s.schema()
			if text, _ := definition["description"].(string); text == "" {
				s.errorf("the kind has no description")
			}
			spec, _, _ := unstructured.NestedMap(definition, "properties", "spec")
			properties, _ := resolve(document, spec)["properties"].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(properties)) {
				if property, _ := properties[name].(map[string]any); property["description"] == nil {
					s.errorf("spec.%s has no description", name)
				}
			}
		}},
	{"openapi/v3-metadata", Required, openapis,
		"The field metadata refers to ObjectMeta, so that clients recognize it.", nil, func(s *session) {
			definition, document := s.schema()
			field, _, _ := unstructured.NestedMap(definition, "properties", "metadata")
			properties, _ := resolve(document, field)["properties"].(map[string]any)
			for _, name := range []string{"name", "labels", "resourceVersion", "managedFields"} {
				if _, ok := properties[name]; !ok {
					s.errorf("metadata.%s is not in the schema", name)
				}
			}
		}},
	{"openapi/v3-etag", Recommended, openapis, "An unchanged document returns 304 for its ETag.", nil,
		func(s *session) {
			url := s.documentURL()
			etag := s.want(s.do("GET", url), 200).Header.Get("ETag")
			if etag == "" {
				s.fatalf("%s has no ETag", url)
			}
			s.want(s.do("GET", url, header("If-None-Match", etag)), 304)
		}},
	{"openapi/v2", Required, openapis, "OpenAPI v2 has a definition of the kind.", nil, func(s *session) {
		document := struct {
			Definitions map[string]struct {
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
		}{}
		s.decoded(s.do("GET", "/openapi/v2"), &document)
		want := metav1.GroupVersionKind{Group: s.r.discovered.gvr.Group, Version: s.r.discovered.gvr.Version,
			Kind: s.kind()}
		for _, definition := range document.Definitions {
			if slices.Contains(definition.Kinds, want) {
				return
			}
		}
		s.errorf("none of %d definitions has %v", len(document.Definitions), want)
	}},
	{"openapi/v3-list-types", Recommended, applying,
		"Lists of elements with names or keys are marked as such, so that managers can share them.",
		nil, func(s *session) {
			definition, document := s.schema()
			status, ok, _ := unstructured.NestedMap(definition, "properties", "status")
			conditions, has := func() (map[string]any, bool) {
				properties, _ := resolve(document, status)["properties"].(map[string]any)
				conditions, has := properties["conditions"].(map[string]any)
				return conditions, has
			}()
			if !ok || !has {
				s.skipf("the status has no conditions")
			}
			if conditions["x-kubernetes-list-type"] != "map" {
				s.errorf("status.conditions has the list type %v, want map", conditions["x-kubernetes-list-type"])
			}
		}},
}
