// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// watchOwn watches the objects of the check from a resourceVersion.
func (s *session) watchOwn(version string, options ...option) *watcher {
	options = append(options, query("labelSelector", s.selector()))
	if version != "" {
		options = append(options, query("resourceVersion", version))
	}
	return s.watch(s.collection(), options...)
}

// now returns the resourceVersion of a list.
func (s *session) now() string {
	version, _, _ := unstructured.NestedString(s.want(s.list(), 200).object().Object, "metadata", "resourceVersion")
	return version
}

var watchChecks = []Check{
	{"watch/changes", Required, concepts,
		"A watch that starts at a list sees creates, updates and deletions, in this order and once each.",
		[]need{verbs("create", "patch", "delete", "list", "watch")}, func(s *session) {
			w := s.watchOwn(s.now())
			obj := s.create()
			if e := w.expect("ADDED", obj.GetName()); e.object().GetUID() != obj.GetUID() ||
				e.object().GetResourceVersion() != obj.GetResourceVersion() {
				s.errorf("got %s, want uid %s and resourceVersion %s", e, obj.GetUID(), obj.GetResourceVersion())
			}
			changed := s.patch(obj, metadata(map[string]any{"labels": map[string]any{"a": "b"}}))
			for {
				if e := w.expect("MODIFIED",
					obj.GetName()); e.object().GetResourceVersion() == changed.GetResourceVersion() {
					break
				}
			}
			s.want(s.do("DELETE", s.path(obj), query("propagationPolicy", "Background")), 200, 202)
			for {
				if e := w.next(); e.Type == "DELETED" {
					return
				} else if e.Type != "MODIFIED" {
					s.fatalf("got %s, want DELETED", e)
				}
			}
		}},
	{"watch/no-existing-objects", Required, concepts,
		"A watch that starts at a list does not repeat the objects of the list.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			s.create()
			w := s.watchOwn(s.now())
			obj := s.create()
			for {
				// A controller may change the first object.
				if e := w.next(); e.Type == "ADDED" {
					if e.object().GetName() != obj.GetName() {
						s.errorf("got %s, want the object that came later", e)
					}
					return
				}
			}
		}},
	{"watch/from-object", Required, concepts, "A watch from the resourceVersion of an object sees later events.",
		[]need{verbs("create", "watch")}, func(s *session) {
			first := s.create()
			second := s.create()
			w := s.watchOwn(first.GetResourceVersion())
			for {
				if e := w.next(); e.object().GetName() == second.GetName() {
					return
				} else if e.Type == "ADDED" {
					s.fatalf("got %s, want a later event", e)
				}
			}
		}},
	{"watch/initial", Required, concepts,
		"A watch without a resourceVersion begins with ADDED for each existing object.",
		[]need{verbs("create", "watch")}, func(s *session) {
			s.initial(s.some(3), s.watchOwn(""))
		}},
	{"watch/initial-zero", Required, concepts,
		"A watch with resourceVersion=0 begins with ADDED for each existing object.",
		[]need{verbs("create", "watch")}, func(s *session) {
			want := s.some(3)
			// wait until the cache contains them
			s.lists(s.list(query("resourceVersion", s.now()), query("resourceVersionMatch", "NotOlderThan")), want)
			s.initial(want, s.watchOwn("0"))
		}},
	{"watch/timeout", Required, concepts, "A watch ends after timeoutSeconds.", []need{verbs("watch")},
		func(s *session) {
			began := time.Now()
			w := s.watchOwn("", query("timeoutSeconds", "2"))
			for {
				if _, ok := w.any(); !ok {
					break
				}
			}
			if took := time.Since(began); took > 20*time.Second {
				s.errorf("it took %s, want 2 s", took)
			}
		}},
	{"watch/bookmark", Recommended, kep("956-watch-bookmark"),
		"A watch with allowWatchBookmarks has a bookmark before it times out.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			w := s.watchOwn(s.now(), query("timeoutSeconds", "4"), query("allowWatchBookmarks", "true"))
			s.create() // without a change since the version of the watch, there may be no bookmark
			for {
				e, ok := w.any()
				if !ok {
					s.fatalf("the watch ended without a bookmark")
				}
				if e.Type == "BOOKMARK" {
					if obj := e.object(); obj.GetKind() != s.kind() || obj.GetResourceVersion() == "" ||
						obj.GetName() != "" {
						s.errorf("the bookmark is %v, want the kind and a resourceVersion alone", e.Object)
					}
					return
				}
			}
		}},
	{"watch/no-bookmark", Required, kep("956-watch-bookmark"), "A watch without allowWatchBookmarks has no bookmark.",
		[]need{verbs("list", "watch")}, func(s *session) {
			w := s.watchOwn(s.now(), query("timeoutSeconds", "3"))
			for {
				e, ok := w.any()
				if !ok {
					return
				}
				if e.Type == "BOOKMARK" {
					s.fatalf("got a bookmark")
				}
			}
		}},
	{"watch/leaves-selection", Required, concepts,
		"A watch with a selector sees DELETED for an object that no longer matches, and ADDED for one that now " +
			"matches.",
		[]need{verbs("create", "patch", "list", "watch")}, func(s *session) {
			w := s.watch(s.collection(), query("labelSelector", s.selector()+",in=yes"),
				query("resourceVersion", s.now()))
			obj := s.create()
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"in": "yes"}}))
			w.expect("ADDED", obj.GetName())
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"in": nil}}))
			for {
				e := w.next()
				if e.Type == "MODIFIED" {
					continue // by a controller
				}
				if e.Type != "DELETED" || e.object().GetName() != obj.GetName() {
					s.errorf("got %s, want DELETED", e)
				}
				return
			}
		}},
	{"watch/last-selected-state", Required, concepts,
		"The DELETED of an object that no longer matches has the last matching state, with the resourceVersion of " +
			"the change.", []need{verbs("create", "patch", "list", "watch")}, func(s *session) {
			obj := s.create(labelled("in", "yes"))
			w := s.watch(s.collection(), query("labelSelector", s.selector()+",in=yes"),
				query("resourceVersion", obj.GetResourceVersion()))
			left := s.patch(obj, metadata(map[string]any{"labels": map[string]any{"in": "no"}}))
			for {
				e := w.next()
				if e.Type == "MODIFIED" {
					continue // by a controller
				}
				if e.Type != "DELETED" || e.object().GetLabels()["in"] != "yes" ||
					e.object().GetResourceVersion() != left.GetResourceVersion() {
					s.errorf("got %s with the labels %v, want DELETED with in=yes and resourceVersion %s", e,
						e.object().GetLabels(), left.GetResourceVersion())
				}
				return
			}
		}},
	{"watch/by-name", Required, concepts, "A watch of one object by metadata.name sees no other object.",
		[]need{verbs("create", "watch")}, func(s *session) {
			one := s.create()
			w := s.watch(s.collection(), query("fieldSelector", "metadata.name="+one.GetName()),
				query("timeoutSeconds", "3"))
			w.expect("ADDED", one.GetName())
			s.create()
			for {
				e, ok := w.any()
				if !ok {
					return
				}
				if e.object().GetName() != one.GetName() {
					s.errorf("got %s", e)
				}
			}
		}},
	{"watch/all-namespaces", Required, concepts, "A watch over all namespaces sees each namespace.",
		[]need{verbs("create", "list", "watch"), namespaced}, func(s *session) {
			w := s.watch(s.collectionIn(s.r.discovered.gvr.Version, ""), query("labelSelector", s.selector()),
				query("resourceVersion", s.now()))
			w.expect("ADDED", s.create().GetName())
		}},
	{"watch/order", Required, concepts,
		"Events arrive in the order of the writes, and none is missing.",
		[]need{verbs("create", "patch", "list", "watch")}, func(s *session) {
			obj := s.create()
			w := s.watchOwn(obj.GetResourceVersion())
			const writes = 30
			for i := range writes {
				s.patch(obj, metadata(map[string]any{"annotations": map[string]any{"count": fmt.Sprint(i)}}))
			}
			for i := 0; i < writes; {
				switch got := w.expect("MODIFIED", obj.GetName()).object().GetAnnotations()["count"]; got {
				case fmt.Sprint(i):
					i++
				case fmt.Sprint(i - 1), "": // written by a controller
				default:
					s.fatalf("after the write %d, the watch saw %s", i-1, got)
				}
			}
		}},
	{"watch/too-old", Required, concepts,
		"A watch from a resourceVersion that the server no longer has ends with 410 Expired. It never skips events.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			want := s.create()
			a := s.want(s.do("GET", s.collection(), query("watch", "true"), query("timeoutSeconds", "1"),
				query("labelSelector", s.selector()), query("resourceVersion", "1")), 200, 410)
			if a.Code == 410 {
				s.expectRefused(a, 410)
				return
			}
			e := event{}
			if err := json.NewDecoder(bytes.NewReader(a.Body)).Decode(&e); err != nil {
				s.fatalf("the watch ended without an event (%v), want ADDED %s or the error 410", err, want.GetName())
			}
			if e.Type == "ERROR" {
				if code, reason := e.Object["code"], e.Object["reason"]; code != int64(410) || reason != "Expired" &&
					reason != "Gone" {
					s.errorf("got %s with the reason %v, want 410 Expired", e, reason)
				}
				return
			}
			if e.Type != "ADDED" || e.object().GetName() != want.GetName() {
				s.errorf("got %s, want ADDED %s or the error 410", e, want.GetName())
			}
		}},
	{"watch/resumed", Required, concepts,
		"A watch from the resourceVersion of the last event sees later events, and no event twice.",
		[]need{verbs("create", "watch")}, func(s *session) {
			for range 3 {
				s.create()
			}
			first := s.watchOwn("")
			var last *unstructured.Unstructured
			for range 3 {
				last = first.next().object()
			}
			first.cancel()
			w := s.watchOwn(last.GetResourceVersion())
			later := s.create()
			for {
				e := w.next()
				if e.object().GetName() == later.GetName() {
					return
				}
				if e.Type == "ADDED" {
					s.fatalf("got %s again", e)
				}
			}
		}},
	{"watch/other-connections", Recommended, concepts,
		"Watches on other connections, possibly at other replicas, see a write within a second.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			var watches []*watcher
			version := s.now()
			for range 8 {
				config := rest.CopyConfig(s.r.target.Config)
				config.QPS, config.Timeout = -1, 0
				// Another dialer creates another connection.
				config.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
				apart, err := newEndpoint(config)
				if err != nil {
					s.fatalf("%v", err)
				}
				watches = append(watches, s.watchOwn(version, at(apart)))
			}
			slowest := time.Duration(0)
			for range 3 { // the machine may be slow once
				name := s.create().GetName()
				began := time.Now()
				for _, w := range watches {
					w.expect("ADDED", name)
				}
				if slowest = time.Since(began); slowest <= time.Second {
					return
				}
			}
			s.errorf("the last of 8 watches saw the object after %s", slowest.Round(time.Millisecond))
		}},
	{"watch/malformed-version", Recommended, concepts,
		"A watch from a malformed resourceVersion is rejected with 400 or 422.", []need{verbs("watch")},
		func(s *session) {
			s.expectRefused(s.do("GET", s.collection(), query("watch", "true"), query("resourceVersion", "abc"),
				query("timeoutSeconds", "2")), 400, 422)
		}},
	{"watch/future-version", Recommended, concepts,
		"A watch from a resourceVersion in the future is rejected or sends no event, and never shows older objects.",
		[]need{verbs("create", "watch")}, func(s *session) {
			s.create()
			a := s.do("GET", s.collection(), query("watch", "true"), query("resourceVersion", future),
				query("timeoutSeconds", "2"), query("labelSelector", s.selector()))
			if a.Code == 200 && len(a.Body) > 0 && !slices.Contains([]string{"ERROR"}, firstEvent(a)) {
				s.errorf("got %.300q, want an error or nothing", a.Body)
			}
		}},
	{"watch/selector-malformed", Required, selecting, "A watch with a malformed selector is rejected with 400.",
		[]need{verbs("watch")}, func(s *session) {
			s.expectRefused(s.do("GET", s.collection(), query("watch", "true"), query("labelSelector", "a in b"),
				query("timeoutSeconds", "2")), 400)
		}},
	{"watch/deprecated-path", Optional, concepts, "The deprecated watch path is served.",
		[]need{verbs("create", "watch"), namespaced}, func(s *session) {
			obj := s.create()
			path := s.groupPath(s.r.discovered.gvr.Version) + "/watch/namespaces/" + s.namespace + "/" +
				s.r.discovered.gvr.Resource
			s.watch(path, query("labelSelector", s.selector()), query("timeoutSeconds", "5")).expect("ADDED",
				obj.GetName())
		}},
}

func firstEvent(a *response) string {
	obj := a.object()
	kind, _, _ := unstructured.NestedString(obj.Object, "type")
	return kind
}

// initial fails the check unless a watch begins with the objects.
func (s *session) initial(want []string, w *watcher) {
	var got []string
	for len(got) < len(want) {
		e := w.next()
		if e.Type == "MODIFIED" {
			continue // by a controller
		}
		if e.Type != "ADDED" {
			s.fatalf("got %s, want ADDED", e)
		}
		got = append(got, e.object().GetName())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		s.errorf("got ADDED for %q, want %q", got, want)
	}
}

const (
	watchListing = "3157-watch-list"
	// initialEventsEnd is the annotation of the bookmark after the initial events.
	initialEventsEnd = "k8s.io/initial-events-end"
)

// streamed returns the options of a streaming list.
func streamed() []option {
	return []option{query("sendInitialEvents", "true"), query("resourceVersionMatch", "NotOlderThan"),
		query("allowWatchBookmarks", "true")}
}

// untilEnd reads the initial events and returns their names, sorted, and the final bookmark.
func (s *session) untilEnd(w *watcher) (names []string, bookmark *unstructured.Unstructured) {
	for {
		e, ok := w.any()
		switch {
		case !ok:
			s.fatalf("the watch ended before the bookmark that ends the initial events")
		case e.Type == "ADDED":
			names = append(names, e.object().GetName())
		case e.Type == "BOOKMARK" && e.object().GetAnnotations()[initialEventsEnd] == "true":
			slices.Sort(names)
			return names, e.object()
		case e.Type != "BOOKMARK" && e.Type != "MODIFIED":
			s.fatalf("got %s, want ADDED or the bookmark", e)
		}
	}
}

var watchListChecks = []Check{
	{"watch-list/initial", Required, kep(watchListing),
		"A streaming list has each object as ADDED, and ends with an annotated bookmark.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			want := s.some(3)
			got, bookmark := s.untilEnd(s.watchOwn("", streamed()...))
			if !slices.Equal(got, want) || bookmark.GetResourceVersion() == "" || bookmark.GetKind() != s.kind() {
				s.errorf("got %q and a bookmark %v, want %q and a resourceVersion", got, bookmark.Object, want)
			}
		}},
	{"watch-list/empty", Required, kep(watchListing), "A streaming list without objects has the bookmark.",
		[]need{verbs("list", "watch")}, func(s *session) {
			if got, _ := s.untilEnd(s.watchOwn("", streamed()...)); len(got) > 0 {
				s.errorf("got %q, want nothing", got)
			}
		}},
	{"watch-list/continues", Required, kep(watchListing), "The watch continues after the bookmark.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			w := s.watchOwn("", streamed()...)
			s.untilEnd(w)
			w.expect("ADDED", s.create().GetName())
		}},
	{"watch-list/own-writes", Required, kep(watchListing), "A streaming list sees the preceding write.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			var want []string
			for range 5 {
				want = append(want, s.create().GetName())
				slices.Sort(want)
				w := s.watchOwn("", streamed()...)
				if got, _ := s.untilEnd(w); !slices.Equal(got, want) {
					s.fatalf("got %q, want %q", got, want)
				}
				w.cancel()
			}
		}},
	{"watch-list/not-older", Required, kep(watchListing), "A streaming list with a resourceVersion is not older.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			obj := s.create()
			got, _ := s.untilEnd(s.watchOwn(obj.GetResourceVersion(), streamed()...))
			if !slices.Equal(got, []string{obj.GetName()}) {
				s.errorf("got %q, want %s", got, obj.GetName())
			}
		}},
	{"watch-list/without-match", Required, kep(watchListing),
		"sendInitialEvents without resourceVersionMatch is rejected with 422 or 400.", []need{verbs("list", "watch")},
		func(s *session) {
			s.expectRefused(s.do("GET", s.collection(), query("watch", "true"), query("sendInitialEvents", "true"),
				query("allowWatchBookmarks", "true"), query("timeoutSeconds", "2")), 422, 400)
		}},
	{"watch-list/list", Required, kep(watchListing),
		"sendInitialEvents for a list that is not a watch is rejected with 422 or 400.", []need{verbs("list", "watch")},
		func(s *session) {
			s.expectRefused(s.list(query("sendInitialEvents", "true"), query("resourceVersionMatch", "NotOlderThan")),
				422,
				400)
		}},
	{"watch-list/disabled", Required, kep(watchListing), "A watch with sendInitialEvents=false has only later events.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			s.create()
			w := s.watchOwn("", query("sendInitialEvents", "false"), query("resourceVersionMatch", "NotOlderThan"),
				query("allowWatchBookmarks", "true"), query("timeoutSeconds", "20"))
			later := s.create()
			for {
				if e := w.next(); e.Type == "ADDED" {
					if e.object().GetName() != later.GetName() {
						s.errorf("got %s, want %s", e, later.GetName())
					}
					return
				}
			}
		}},
}
