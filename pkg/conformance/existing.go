// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/yaml"
)

// The checks of an existing object are for kinds of which the run cannot create objects, such as a
// report that the server creates. They read the object of which the sample is a copy.

// existing requires verbs of a resource of which the run cannot create objects.
func existing(names ...string) need {
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

// existingPath returns the paths of the existing object and of its collection.
func (s *session) existingPath() (object, collection string) {
	collection = s.collectionIn(s.r.discovered.gvr.Version, s.r.target.Sample.GetNamespace())
	return collection + "/" + s.r.target.Sample.GetName(), collection
}

// isExisting stops the check unless an object is the existing one.
func (s *session) isExisting(obj *unstructured.Unstructured, kind string) {
	sample := s.r.target.Sample
	if obj.GetName() != sample.GetName() || obj.GetNamespace() != sample.GetNamespace() || obj.GetKind() != kind {
		s.fatalf("got %s %s/%s, want %s %s/%s", obj.GetKind(), obj.GetNamespace(), obj.GetName(), kind,
			sample.GetNamespace(), sample.GetName())
	}
}

// listHasExisting fails the check unless a list contains the existing object, or lacks it if want
// is false.
func (s *session) listHasExisting(a *response, want bool) {
	found := slices.ContainsFunc(s.want(a, 200).items(), func(item unstructured.Unstructured) bool {
		return item.GetName() == s.r.target.Sample.GetName() && item.GetNamespace() == s.r.target.Sample.GetNamespace()
	})
	if found != want {
		s.errorf("%s: the object is in the list: %t, want %t", a.request, found, want)
	}
}

// addedExisting reads a watch until it adds the existing object.
func (s *session) addedExisting(w *watcher) {
	for {
		e := w.next()
		if e.Type != "ADDED" {
			s.fatalf("%s: got %s, want ADDED", w.line, e)
		}
		if obj := e.object(); obj.GetName() == s.r.target.Sample.GetName() &&
			obj.GetNamespace() == s.r.target.Sample.GetNamespace() {
			return
		}
	}
}

// maxExistingPages is the number of pages that a check reads at most.
const maxExistingPages = 200

var existingChecks = []Check{
	{"existing/get", Required, concepts, "The object can be read by its name, as JSON.", []need{existing("get")},
		func(s *session) {
			path, _ := s.existingPath()
			a := s.want(s.do("GET", path), 200)
			s.mediaType(a, "application/json")
			s.isExisting(a.object(), s.kind())
		}},
	{"existing/yaml", Recommended, concepts, "The object can be read as YAML.", []need{existing("get")}, func(s *session) {
		path, _ := s.existingPath()
		a := s.want(s.do("GET", path, accept("application/yaml")), 200)
		s.mediaType(a, "application/yaml")
		got := &unstructured.Unstructured{}
		if err := utilyaml.Unmarshal(a.Body, &got.Object); err != nil {
			s.fatalf("the body is not YAML: %v", err)
		}
		s.isExisting(got, s.kind())
	}},
	{"existing/protobuf", Optional, concepts,
		"The object can be read as protobuf.", []need{existing("get")}, func(s *session) {
			path, _ := s.existingPath()
			a := s.want(s.do("GET", path, accept(protobufType)), 200)
			s.mediaType(a, protobufType)
		}},
	{"existing/table", Required, concepts, "The object can be read as a Table with one row.", []need{existing("get")},
		func(s *session) {
			path, _ := s.existingPath()
			columns, rows := s.table(s.do("GET", path, accept(asTable)))
			if len(columns) == 0 || len(rows) != 1 {
				s.errorf("got %d columns and %d rows, want some and 1", len(columns), len(rows))
			}
		}},
	{"existing/metadata", Required, concepts, "The object can be read as PartialObjectMetadata.", []need{existing("get")},
		func(s *session) {
			path, _ := s.existingPath()
			s.isExisting(s.want(s.do("GET", path, accept(asMetadata)), 200).object(), "PartialObjectMetadata")
		}},
	{"existing/list", Required, concepts, "The object is in the list, and in the list as PartialObjectMetadata.",
		[]need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			a := s.do("GET", collection)
			s.listHasExisting(a, true)
			if list := a.object(); list.GetKind() != s.kind()+"List" {
				s.errorf("the list is a %s, want a %sList", list.GetKind(), s.kind())
			}
			s.listHasExisting(s.do("GET", collection, accept(asMetadataList)), true)
		}},
	{"existing/list-table", Required, concepts, "The list can be read as a Table with a row for each object.",
		[]need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			want := len(s.want(s.do("GET", collection), 200).items())
			if _, rows := s.table(s.do("GET", collection, accept(asTable))); len(rows) != want {
				s.errorf("got %d rows, want %d", len(rows), want)
			}
		}},
	{"existing/label-selector", Required, selecting, "A label selector selects the object only if it matches.",
		[]need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			s.listHasExisting(s.do("GET", collection, query("labelSelector", "!"+ownLabel)), true)
			s.listHasExisting(s.do("GET", collection, query("labelSelector", ownLabel+"=none")), false)
		}},
	{"existing/field-selector", Required, concepts, "The field selector metadata.name selects only the object.",
		[]need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			a := s.do("GET", collection, query("fieldSelector", "metadata.name="+s.r.target.Sample.GetName()))
			s.listHasExisting(a, true)
			if n := len(a.items()); n != 1 {
				s.errorf("got %d objects, want 1", n)
			}
			s.listHasExisting(s.do("GET", collection, query("fieldSelector", "metadata.name=no-such-object")), false)
		}},
	{"existing/missing", Required, concepts, "An object that does not exist returns 404.", []need{existing("get")},
		func(s *session) {
			_, collection := s.existingPath()
			s.expectRefused(s.do("GET", collection+"/no-such-object"), 404)
		}},
	{"existing/uid", Required, concepts, "Each response has the same uid of the object.",
		[]need{existing("get", "list")}, func(s *session) {
			path, collection := s.existingPath()
			first := s.want(s.do("GET", path), 200).object()
			if first.GetUID() == "" {
				s.fatalf("the object has no uid")
			}
			again := s.want(s.do("GET", path), 200).object()
			list := s.want(s.do("GET", collection), 200).items()
			inList := slices.IndexFunc(list, func(item unstructured.Unstructured) bool {
				return item.GetName() == first.GetName() && item.GetNamespace() == first.GetNamespace()
			})
			if inList < 0 {
				s.fatalf("the list does not contain the object")
			}
			if first.GetUID() != again.GetUID() || first.GetUID() != list[inList].GetUID() {
				s.errorf("got the uids %s and %s, and %s in the list", first.GetUID(), again.GetUID(), list[inList].GetUID())
			}
		}},
	{"existing/pages", Required, kep("365-paginated-lists"), "Pages contain the object exactly once.",
		[]need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			found, token := 0, ""
			for range maxExistingPages {
				a := s.want(s.do("GET", collection, query("limit", "1"), query("continue", token)), 200)
				for _, item := range a.items() {
					if item.GetName() == s.r.target.Sample.GetName() && item.GetNamespace() == s.r.target.Sample.GetNamespace() {
						found++
					}
				}
				if token = continued(a.object()); token == "" {
					break
				}
			}
			if found != 1 && token == "" || found > 1 {
				s.errorf("the object is in %d pages, want 1", found)
			}
		}},
	{"existing/limit", Recommended, kep("365-paginated-lists"),
		"A list with limit=1 has one object, and a token if there are more.", []need{existing("list")}, func(s *session) {
			_, collection := s.existingPath()
			if len(s.want(s.do("GET", collection), 200).items()) < 2 {
				s.skipf("the list has fewer than two objects")
			}
			a := s.want(s.do("GET", collection, query("limit", "1")), 200)
			if n, token := len(a.items()), continued(a.object()); n != 1 || token == "" {
				s.errorf("%s: got %d objects and the token %q, want 1 and a token", a.request, n, token)
			}
		}},
	{"existing/watch", Required, concepts, "A watch with resourceVersion=0 begins with ADDED for the object.",
		[]need{existing("watch")}, func(s *session) {
			_, collection := s.existingPath()
			s.addedExisting(s.watch(collection, query("resourceVersion", "0")))
		}},
	{"existing/watch-list", Recommended, kep(watchListing),
		"A watch with sendInitialEvents begins with ADDED for the object, and a bookmark ends the list.",
		[]need{existing("watch")}, func(s *session) {
			_, collection := s.existingPath()
			w := s.watch(collection, query("sendInitialEvents", "true"), query("allowWatchBookmarks", "true"),
				query("resourceVersionMatch", "NotOlderThan"))
			s.addedExisting(w)
			for {
				e, ok := w.any()
				if !ok {
					s.fatalf("%s: the watch ended, want the bookmark that ends the list", w.line)
				}
				if e.Type == "BOOKMARK" && e.object().GetAnnotations()[initialEventsEnd] == "true" {
					return
				}
			}
		}},
	{"existing/read-only", Required, concepts, "A verb that discovery does not show is rejected with 405.",
		[]need{existing("get"), func(f *discovered, _ *Target) string {
			if slices.Contains(f.resource.Verbs, "delete") {
				return "objects can be deleted"
			}
			return ""
		}}, func(s *session) {
			path, _ := s.existingPath()
			s.expectRefused(s.do("DELETE", path, query("dryRun", "All")), 405)
		}},
	{"existing/kubectl", Required, commanding, "kubectl get prints the object.", []need{existing("get"), aKubectl},
		func(s *session) {
			s.namespace = s.r.target.Sample.GetNamespace()
			s.prints(s.kubectl(nil, "get", s.arg(), s.r.target.Sample.GetName()), s.r.target.Sample.GetName())
		}},
}
