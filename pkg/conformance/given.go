// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/yaml"
)

// The checks of a given object are for kinds of which the run cannot create objects, such as a
// report that the server creates. They read the object of which the sample is a copy.

// given requires verbs of a resource of which the run cannot create objects.
func given(names ...string) need {
	named := offers(names...)
	return func(f *discovered, t *Target) string {
		if slices.Contains(f.resource.Verbs, "create") && f.uncreated == "" {
			return "the run creates objects"
		}
		if t.Sample.GetName() == "" {
			return "the sample has no name"
		}
		return named(f, t)
	}
}

// givenPath returns the paths of the given object and of its collection.
func (s *session) givenPath() (object, collection string) {
	collection = s.collectionIn(s.r.discovered.gvr.Version, s.r.target.Sample.GetNamespace())
	return collection + "/" + s.r.target.Sample.GetName(), collection
}

// isGiven stops the check unless an object is the given one.
func (s *session) isGiven(obj *unstructured.Unstructured, kind string) {
	sample := s.r.target.Sample
	if obj.GetName() != sample.GetName() || obj.GetNamespace() != sample.GetNamespace() || obj.GetKind() != kind {
		s.fatalf("got %s %s/%s, want %s %s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName(), kind,
			sample.GetNamespace(), sample.GetName())
	}
}

// givenIn fails the check unless a list contains the given object, or lacks it if want is false.
func (s *session) givenIn(a *response, want bool) {
	found := slices.ContainsFunc(s.want(a, 200).items(), func(item unstructured.Unstructured) bool {
		return item.GetName() == s.r.target.Sample.GetName() && item.GetNamespace() == s.r.target.Sample.GetNamespace()
	})
	if found != want {
		s.errorf("%s: the object is in the list: %t, want %t", a.request, found, want)
	}
}

var givenChecks = []Check{
	{"given/get", Required, concepts, "The object can be read by its name, as JSON.", []need{given("get")},
		func(s *session) {
			path, _ := s.givenPath()
			a := s.want(s.do("GET", path), 200)
			s.mediaType(a, "application/json")
			s.isGiven(a.object(), s.kind())
		}},
	{"given/yaml", Recommended, concepts, "The object can be read as YAML.", []need{given("get")}, func(s *session) {
		path, _ := s.givenPath()
		a := s.want(s.do("GET", path, accept("application/yaml")), 200)
		s.mediaType(a, "application/yaml")
		got := &unstructured.Unstructured{}
		if err := utilyaml.Unmarshal(a.Body, &got.Object); err != nil {
			s.fatalf("the body is not YAML: %v", err)
		}
		s.isGiven(got, s.kind())
	}},
	{"given/protobuf", Optional, concepts,
		"The object can be read as protobuf.", []need{given("get")}, func(s *session) {
			path, _ := s.givenPath()
			a := s.want(s.do("GET", path, accept(protobufType)), 200)
			s.mediaType(a, protobufType)
		}},
	{"given/table", Required, concepts, "The object can be read as a Table with one row.", []need{given("get")},
		func(s *session) {
			path, _ := s.givenPath()
			columns, rows := s.table(s.do("GET", path, accept(asTable)))
			if len(columns) == 0 || len(rows) != 1 {
				s.errorf("got %d columns and %d rows, want some and 1", len(columns), len(rows))
			}
		}},
	{"given/metadata", Required, concepts, "The object can be read as PartialObjectMetadata.", []need{given("get")},
		func(s *session) {
			path, _ := s.givenPath()
			s.isGiven(s.want(s.do("GET", path, accept(asMetadata)), 200).object(), "PartialObjectMetadata")
		}},
	{"given/list", Required, concepts, "The object is in the list, and in the list as PartialObjectMetadata.",
		[]need{given("list")}, func(s *session) {
			_, collection := s.givenPath()
			a := s.do("GET", collection)
			s.givenIn(a, true)
			if list := a.object(); list.GetKind() != s.kind()+"List" {
				s.errorf("the list is a %s, want a %sList", list.GetKind(), s.kind())
			}
			s.givenIn(s.do("GET", collection, accept(asMetadataList)), true)
		}},
	{"given/list-table", Required, concepts, "The list can be read as a Table with a row for each object.",
		[]need{given("list")}, func(s *session) {
			_, collection := s.givenPath()
			want := len(s.want(s.do("GET", collection), 200).items())
			if _, rows := s.table(s.do("GET", collection, accept(asTable))); len(rows) != want {
				s.errorf("got %d rows, want %d", len(rows), want)
			}
		}},
	{"given/label-selector", Required, selecting, "A label selector selects the object only if it matches.",
		[]need{given("list")}, func(s *session) {
			_, collection := s.givenPath()
			s.givenIn(s.do("GET", collection, query("labelSelector", "!"+ownLabel)), true)
			s.givenIn(s.do("GET", collection, query("labelSelector", ownLabel+"=none")), false)
		}},
	{"given/field-selector", Required, concepts, "The field selector metadata.name selects only the object.",
		[]need{given("list")}, func(s *session) {
			_, collection := s.givenPath()
			a := s.do("GET", collection, query("fieldSelector", "metadata.name="+s.r.target.Sample.GetName()))
			s.givenIn(a, true)
			if n := len(a.items()); n != 1 {
				s.errorf("got %d objects, want 1", n)
			}
			s.givenIn(s.do("GET", collection, query("fieldSelector", "metadata.name=no-such-object")), false)
		}},
	{"given/missing", Required, concepts, "An object that does not exist returns 404.", []need{given("get")},
		func(s *session) {
			_, collection := s.givenPath()
			s.expectRefused(s.do("GET", collection+"/no-such-object"), 404)
		}},
	{"given/kubectl", Required, commanding, "kubectl get prints the object.", []need{given("get"), aKubectl},
		func(s *session) {
			s.namespace = s.r.target.Sample.GetNamespace()
			s.prints(s.kubectl(nil, "get", s.arg(), s.r.target.Sample.GetName()), s.r.target.Sample.GetName())
		}},
}
