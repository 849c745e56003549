// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// list lists the objects of the check, selected by its label.
func (s *session) list(options ...option) *response {
	return s.do("GET", s.collection(), append(options, query("labelSelector", s.selector()))...)
}

// some creates n objects and returns their sorted names.
func (s *session) some(n int) []string {
	var out []string
	for range n {
		out = append(out, s.create().GetName())
	}
	slices.Sort(out)
	return out
}

// lists fails the check unless a list has the names, which must be sorted. The check list/order
// covers the order.
func (s *session) lists(a *response, want []string) *unstructured.Unstructured {
	got := s.want(a, 200).names()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.errorf("%s: got the names %q, want %q", a.request, got, want)
	}
	return a.object()
}

var listChecks = []Check{
	{"list/kind", Required, concepts, "A list has the kind of the objects followed by List, and a resourceVersion.",
		[]need{verbs("list")}, func(s *session) {
			list := s.lists(s.list(), []string{})
			version, _, _ := unstructured.NestedString(list.Object, "metadata", "resourceVersion")
			// A list of a resource without watches may have no version.
			versioned := version != "" && version != "0" || !slices.Contains(s.r.discovered.resource.Verbs, "watch")
			if list.GetKind() != s.kind()+"List" || list.GetAPIVersion() != s.apiVersion() || !versioned {
				s.errorf("got %s %s with resourceVersion %q, want %s %sList and one", list.GetAPIVersion(),
					list.GetKind(),
					version, s.apiVersion(), s.kind())
			}
		}},
	{"list/empty", Required, concepts, "An empty list has the field items, which is not null.", []need{verbs("list")},
		func(s *session) {
			if a := s.want(s.list(), 200); !strings.Contains(string(a.Body), `"items":[]`) {
				s.errorf("got %.300q, want an empty list of items", a.Body)
			}
		}},
	{"list/order", Recommended, concepts, "A list is sorted by name.", []need{verbs("create", "list")},
		func(s *session) {
			want := s.some(5)
			if got := s.want(s.list(), 200).names(); !slices.Equal(got, want) {
				s.errorf("got the names %q, want %q", got, want)
			}
		}},
	{"list/own-writes", Required, kep("2340-Consistent-reads-from-cache"),
		"A list without a resourceVersion sees the preceding write.",
		[]need{verbs("create", "list")}, func(s *session) {
			var want []string
			for range 5 {
				want = append(want, s.create().GetName())
				slices.Sort(want)
				s.lists(s.list(), want)
			}
		}},
	{"list/items", Required, concepts, "The items of a list equal the objects that are read one by one.",
		[]need{verbs("create", "list", "get")}, func(s *session) {
			obj := s.create()
			items := s.want(s.list(), 200).items()
			if len(items) != 1 {
				s.fatalf("got %d items, want 1", len(items))
			}
			if items[0].GetUID() != obj.GetUID() || firstDifference(content(obj), content(&items[0]), "") != "" {
				s.errorf("got %v, want %v", items[0].Object, obj.Object)
			}
		}},
	{"list/namespace-missing", Required, concepts, "A list in a namespace that does not exist is empty.",
		[]need{verbs("list"), namespaced}, func(s *session) {
			a := s.do("GET", s.collectionIn(s.r.discovered.gvr.Version, "no-"+s.name()))
			s.lists(a, []string{})
		}},
	{"list/all-namespaces", Required, concepts, "A list over all namespaces has the objects of each namespace.",
		[]need{verbs("create", "list"), namespaced}, func(s *session) {
			namespace := s.aNamespace()
			s.create()
			s.create(func(obj *unstructured.Unstructured) { obj.SetNamespace(namespace) })
			var found []string
			for _, item := range s.want(s.do("GET", s.collectionIn(s.r.discovered.gvr.Version, ""),
				query("labelSelector", s.selector())), 200).items() {
				found = append(found, item.GetNamespace())
			}
			want := []string{s.namespace, namespace}
			slices.Sort(want)
			slices.Sort(found)
			if !slices.Equal(found, want) {
				s.errorf("got objects of the namespaces %q, want %q", found, want)
			}
		}},
	{"list/any-version", Required, concepts, "A list with resourceVersion=0 succeeds.", []need{verbs("create", "list")},
		func(s *session) {
			want := s.some(2)
			s.eventually("with resourceVersion=0", func() string {
				if got := s.want(s.list(query("resourceVersion", "0")), 200).names(); !slices.Equal(got, want) {
					return fmt.Sprintf("got %q, want %q", got, want)
				}
				return ""
			})
		}},
	{"list/any-version-match", Required, concepts, "A list with resourceVersion=0 and NotOlderThan succeeds.",
		[]need{verbs("list")}, func(s *session) {
			s.want(s.list(query("resourceVersion", "0"), query("resourceVersionMatch", "NotOlderThan")), 200)
		}},
	{"list/not-older", Required, concepts, "A list with a resourceVersion is not older.",
		[]need{verbs("create", "list")}, func(s *session) {
			obj := s.create()
			s.lists(s.list(query("resourceVersion", obj.GetResourceVersion())), []string{obj.GetName()})
		}},
	{"list/not-older-match", Required, concepts, "A list with a resourceVersion and NotOlderThan is not older.",
		[]need{verbs("create", "list")}, func(s *session) {
			obj := s.create()
			s.lists(s.list(query("resourceVersion", obj.GetResourceVersion()),
				query("resourceVersionMatch", "NotOlderThan")), []string{obj.GetName()})
		}},
	{"list/exact", Required, concepts, "A list with a resourceVersion and Exact has this resourceVersion.",
		[]need{verbs("create", "list")}, func(s *session) {
			first := s.create()
			s.create()
			list := s.lists(s.list(query("resourceVersion", first.GetResourceVersion()),
				query("resourceVersionMatch", "Exact")), []string{first.GetName()})
			if version, _, _ := unstructured.NestedString(list.Object, "metadata",
				"resourceVersion"); version != first.GetResourceVersion() {
				s.errorf("the list has resourceVersion %s, want %s", version, first.GetResourceVersion())
			}
		}},
	{"list/exact-state", Required, concepts,
		"A list at an exact resourceVersion has the objects in their state at that time.",
		[]need{verbs("create", "list", "patch")}, func(s *session) {
			obj := s.create(labelled("state", "old"))
			s.patch(obj, metadata(map[string]any{"labels": map[string]any{"state": "new"}}))
			items := s.want(s.list(query("resourceVersion", obj.GetResourceVersion()),
				query("resourceVersionMatch", "Exact")), 200).items()
			if len(items) != 1 || items[0].GetLabels()["state"] != "old" {
				s.errorf("got %d objects, want one with the old label", len(items))
			}
		}},
	{"list/exact-zero", Required, concepts, "resourceVersion=0 with Exact is rejected with 400 or 422.",
		[]need{verbs("list")}, func(s *session) {
			s.expectRefused(s.list(query("resourceVersion", "0"), query("resourceVersionMatch", "Exact")), 400, 422)
		}},
	{"list/match-without-version", Required, concepts,
		"A resourceVersionMatch without a resourceVersion is rejected with 400 or 422.", []need{verbs("list")},
		func(s *session) {
			s.expectRefused(s.list(query("resourceVersionMatch", "NotOlderThan")), 400, 422)
		}},
	{"list/match-unknown", Required, concepts, "An unknown resourceVersionMatch is rejected with 400 or 422.",
		[]need{verbs("list")}, func(s *session) {
			s.expectRefused(s.list(query("resourceVersion", "1"), query("resourceVersionMatch", "Perhaps")), 400, 422)
		}},
	{"list/malformed-version", Required, concepts, "A malformed resourceVersion is rejected with 400.",
		[]need{verbs("list", "watch")}, func(s *session) {
			s.expectRefused(s.list(query("resourceVersion", "abc")), 400)
		}},
	{"list/future-version", Required, concepts,
		"A resourceVersion in the future returns 504 Timeout with the cause ResourceVersionTooLarge, or 410.",
		[]need{verbs("list", "watch")}, func(s *session) {
			a := s.list(query("resourceVersion", future), query("resourceVersionMatch", "NotOlderThan"))
			if a.Code == 410 { // a server whose replicas have different resourceVersions
				s.expectRefused(a, 410)
				return
			}
			s.tooLarge(a)
		}},
	{"list/old-version-exact", Required, concepts,
		"A resourceVersion that is compacted or precedes the storage returns 410 or an old list, never a newer one.",
		[]need{verbs("create", "list")}, func(s *session) {
			s.create()
			a := s.want(s.list(query("resourceVersion", "1"), query("resourceVersionMatch", "Exact")), 200, 410)
			if a.Code == 200 && len(a.items()) > 0 {
				s.errorf("got %q, which did not exist then", a.names())
			}
		}},
	{"list/unknown-parameter", Recommended, concepts, "An unknown parameter is ignored.",
		[]need{verbs("list")}, func(s *session) {
			s.want(s.list(query("noSuchParameter", "x")), 200)
		}},
}

func (s *session) tooLarge(a *response) {
	status := s.expectRefused(a, 504)
	if status.Details == nil || !slices.ContainsFunc(status.Details.Causes,
		func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeResourceVersionTooLarge }) {
		s.errorf("the details are %+v, want the cause ResourceVersionTooLarge", status.Details)
	}
}

// selects returns a check that a label selector selects some of three objects: one with tier=a,
// one with tier=b, and one without the label.
func selects(id, text, selector string, want ...string) Check {
	return Check{"selectors/" + id, Required, selecting, text, []need{verbs("create", "list")}, func(s *session) {
		byTier := map[string]string{"": s.create().GetName()}
		for _, tier := range []string{"a", "b"} {
			byTier[tier] = s.create(labelled("tier", tier)).GetName()
		}
		names := []string{}
		for _, tier := range want {
			names = append(names, byTier[tier])
		}
		slices.Sort(names)
		s.lists(s.do("GET", s.collection(), query("labelSelector", s.selector()+","+selector)), names)
	}}
}

var selectorChecks = []Check{
	selects("equal", "tier=a selects objects with this value.", "tier=a", "a"),
	selects("not-equal", "tier!=a selects objects with another value or none.", "tier!=a", "", "b"),
	selects("in", "tier in (a, b) selects objects with one of the values.", "tier in (a,b)", "a", "b"),
	selects("not-in", "tier notin (a) selects objects with another value or none.", "tier notin (a)", "", "b"),
	selects("exists", "tier selects objects with the label.", "tier", "a", "b"),
	selects("does-not-exist", "!tier selects objects without the label.", "!tier", ""),
	selects("none", "Contradictory requirements select nothing.", "tier=a,tier=b"),
	{"selectors/greater", Recommended, selecting, "size>5 and size<5 compare numbers.",
		[]need{verbs("create", "list")}, func(s *session) {
			small, large := s.create(labelled("size", "3")).GetName(), s.create(labelled("size", "7")).GetName()
			s.lists(s.do("GET", s.collection(), query("labelSelector", s.selector()+",size>5")), []string{large})
			s.lists(s.do("GET", s.collection(), query("labelSelector", s.selector()+",size<5")), []string{small})
		}},
	{"selectors/both", Required, selecting, "A label selector and a field selector select the objects that match both.",
		[]need{verbs("create", "list")}, func(s *session) {
			first, second := s.create(labelled("tier", "a")).GetName(), s.create(labelled("tier", "b")).GetName()
			labels := query("labelSelector", s.selector()+",tier=a")
			s.lists(s.do("GET", s.collection(), labels, query("fieldSelector", "metadata.name="+first)),
				[]string{first})
			s.lists(s.do("GET", s.collection(), labels, query("fieldSelector", "metadata.name="+second)), []string{})
		}},
	{"selectors/streamed", Required, selecting, "A streaming list selects the same objects as a list.",
		[]need{verbs("create", "list", "watch")}, func(s *session) {
			s.create(labelled("tier", "b"))
			want := s.create(labelled("tier", "a")).GetName()
			w := s.watch(s.collection(), append(streamed(), query("labelSelector", s.selector()+",tier=a"))...)
			if got, _ := s.untilEnd(w); !slices.Equal(got, []string{want}) {
				s.errorf("got %q, want %s", got, want)
			}
		}},
	{"selectors/not-namespace", Required, concepts,
		"The field selector metadata.namespace!= selects the objects of other namespaces.",
		[]need{verbs("create", "list"), namespaced}, func(s *session) {
			want := s.some(1)
			all := s.collectionIn(s.r.discovered.gvr.Version, "")
			s.lists(s.do("GET", all, query("labelSelector", s.selector()),
				query("fieldSelector", "metadata.namespace!=default")), want)
			s.lists(s.do("GET", all, query("labelSelector", s.selector()),
				query("fieldSelector", "metadata.namespace!="+s.namespace)), []string{})
		}},
	{"selectors/malformed", Required, selecting, "A malformed label selector is rejected with 400.",
		[]need{verbs("list")}, func(s *session) {
			s.expectRefused(s.do("GET", s.collection(), query("labelSelector", "a in b")), 400)
		}},
	{"selectors/name", Required, concepts, "The field selector metadata.name selects by name.",
		[]need{verbs("create", "list")}, func(s *session) {
			want := s.some(2)
			s.lists(s.do("GET", s.collection(), query("fieldSelector", "metadata.name="+want[0])), want[:1])
		}},
	{"selectors/not-name", Required, concepts,
		"The field selector metadata.name!= selects the objects with other names.",
		[]need{verbs("create", "list")}, func(s *session) {
			want := s.some(2)
			s.lists(s.list(query("fieldSelector", "metadata.name!="+want[0])), want[1:])
		}},
	{"selectors/namespace", Required, concepts, "The field selector metadata.namespace selects by namespace.",
		[]need{verbs("create", "list"), namespaced}, func(s *session) {
			want := s.some(1)
			all := s.collectionIn(s.r.discovered.gvr.Version, "")
			s.lists(s.do("GET", all, query("labelSelector", s.selector()),
				query("fieldSelector", "metadata.namespace="+s.namespace)), want)
			s.lists(s.do("GET", all, query("labelSelector", s.selector()),
				query("fieldSelector", "metadata.namespace=default")), []string{})
		}},
	{"selectors/unknown-field", Required, concepts,
		"A field without support for selectors is rejected with 400, and the message contains its name.",
		[]need{verbs("list")},
		func(s *session) {
			if status := s.expectRefused(s.list(query("fieldSelector", "metadata.noSuchField=x")),
				400); !strings.Contains(
				status.Message, "metadata.noSuchField") {
				s.errorf("the message is %q, want the name of the field", status.Message)
			}
		}},
	{"selectors/malformed-field", Required, concepts, "A malformed field selector is rejected with 400.",
		[]need{verbs("list")}, func(s *session) {
			s.expectRefused(s.list(query("fieldSelector", "a~b")), 400)
		}},
}

// continued returns the continue token of a list.
func continued(list *unstructured.Unstructured) string {
	token, _, _ := unstructured.NestedString(list.Object, "metadata", "continue")
	return token
}

// token returns the continue token of a list. ListOptions permits servers to ignore a limit, so
// the check is skipped if there is no token.
func (s *session) token(a *response) string {
	token := continued(s.want(a, 200).object())
	if token == "" {
		s.skipf("the server ignores the limit of a list")
	}
	return token
}

// expiredToken returns the token with the first resourceVersion. It skips the check if the token
// is not one of k8s.io/apiserver.
func (s *session) expiredToken(token string) string {
	data, err := base64.RawURLEncoding.DecodeString(token)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if _, ok := fields["rv"].(float64); err != nil || !ok || fields["v"] != "meta.k8s.io/v1" {
		s.skipf("the token is not one of k8s.io/apiserver")
	}
	fields["rv"] = 1
	if data, err = json.Marshal(fields); err != nil {
		s.fatalf("%v", err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

var pageChecks = []Check{
	{"pages/limit", Recommended, kep("365-paginated-lists"),
		"A list with a limit has this number of items, a token for the rest, and the number of remaining items if " +
			"it reports one.",
		[]need{verbs("create", "list")}, func(s *session) {
			want := s.some(5)
			list := s.lists(s.list(query("limit", "2")), want[:2])
			if continued(list) == "" {
				s.errorf("the list has no token")
			}
			// With a label selector, servers do not count.
			if remaining, ok, _ := unstructured.NestedInt64(list.Object, "metadata", "remainingItemCount"); ok &&
				remaining != 3 {
				s.errorf("remainingItemCount is %d, want 3 or none", remaining)
			}
		}},
	{"pages/remaining", Recommended, kep("365-paginated-lists"),
		"Without selectors, remainingItemCount is the number of remaining items.",
		[]need{verbs("create", "list"), namespaced}, func(s *session) {
			s.apart()
			s.some(4)
			for token, seen := "", 0; ; {
				list := s.want(s.do("GET", s.collection(), query("limit", "2"), query("continue", token)), 200)
				// some kinds create objects in each new namespace
				total := len(s.want(s.do("GET", s.collection()), 200).items())
				seen += len(list.items())
				if remaining, _, _ := unstructured.NestedInt64(list.object().Object, "metadata",
					"remainingItemCount"); int(
					remaining) != total-seen {
					s.errorf("after %d of %d elements, remainingItemCount is %d", seen, total, remaining)
				}
				if token = continued(list.object()); token == "" {
					return
				}
			}
		}},
	{"pages/all", Required, kep("365-paginated-lists"),
		"All pages together are the whole list, and have the same resourceVersion.", []need{verbs("create", "list")},
		func(s *session) {
			want := s.some(5)
			var got, versions []string
			for token := ""; ; {
				a := s.want(s.list(query("limit", "2"), query("continue", token)), 200)
				got = append(got, a.names()...)
				version, _, _ := unstructured.NestedString(a.object().Object, "metadata", "resourceVersion")
				versions = append(versions, version)
				if token = continued(a.object()); token == "" {
					break
				}
			}
			if !slices.Equal(got, want) || len(slices.Compact(slices.Clone(versions))) != 1 {
				s.errorf("got %q with the resourceVersions %q, want %q", got, versions, want)
			}
		}},
	{"pages/snapshot", Required, kep("365-paginated-lists"),
		"All pages show the state at the time of the first page, without later writes.",
		[]need{verbs("create", "list", "delete")}, func(s *session) {
			want := s.some(4)
			token := s.token(s.list(query("limit", "2")))
			s.create(func(obj *unstructured.Unstructured) { obj.SetName(want[3] + "-later") })
			gone := s.object()
			gone.SetName(want[3])
			s.deleteAndWait(gone)
			s.lists(s.list(query("limit", "5"), query("continue", token)), want[2:])
		}},
	{"pages/table", Required, kep("365-paginated-lists"),
		"A Table with a limit has the continue token and the resourceVersion of the list.",
		[]need{verbs("create", "list")}, func(s *session) {
			want := s.some(3)
			token := ""
			for range want {
				a := s.want(s.list(query("limit", "2"), query("continue", token), accept(asTable)), 200)
				if version, _, _ := unstructured.NestedString(a.object().Object, "metadata",
					"resourceVersion"); version == "" {
					s.errorf("%s: the Table has no resourceVersion", a.request)
				}
				_, rows := s.table(a)
				if token == "" && len(rows) == len(want) {
					s.skipf("the server ignores the limit of a list")
				}
				if want = want[len(rows):]; len(want) == 0 {
					return
				}
				if token = continued(a.object()); token == "" {
					s.fatalf("%s: the Table has %d rows and no token, and %d objects are left", a.request,
						len(rows), len(want))
				}
			}
		}},
	{"pages/last", Required, kep("365-paginated-lists"), "The last page has no token.", []need{verbs("create", "list")},
		func(s *session) {
			want := s.some(2)
			if token := continued(s.lists(s.list(query("limit", "1000")), want)); token != "" {
				s.errorf("got the token %q, want none", token)
			}
		}},
	{"pages/malformed-token", Required, kep("365-paginated-lists"), "A malformed token is rejected with 400.",
		[]need{verbs("list", "watch")}, func(s *session) {
			s.expectRefused(s.list(query("limit", "2"), query("continue", "none")), 400)
		}},
	{"pages/foreign-token", Required, kep("365-paginated-lists"),
		"A token of another collection returns only objects of the requested collection.",
		[]need{verbs("create", "list"), namespaced}, func(s *session) {
			s.some(3)
			token := s.token(s.list(query("limit", "1")))
			other := s.aNamespace()
			a := s.want(s.do("GET", s.collectionIn(s.r.discovered.gvr.Version, other), query("continue", token),
				query("labelSelector", s.selector())), 200, 400)
			if a.Code == 200 && len(a.items()) > 0 {
				s.errorf("the namespace %s has %q", other, a.names())
			}
		}},
	{"pages/expired", Recommended, kep("365-paginated-lists"),
		"A token that is too old is rejected with 410 Expired and a new token for the current state. Before it " +
			"expires, pages show their original state.", []need{verbs("create", "list")}, func(s *session) {
			want := s.some(3)
			token := s.token(s.list(query("limit", "1")))
			old := s.expiredToken(token)
			a := s.want(s.list(query("limit", "5"), query("continue", old)), 200, 410)
			if a.Code == 200 {
				if got := a.names(); len(got) > 0 {
					s.errorf("at the first resourceVersion, got %q", got)
				}
				return
			}
			status := s.expectRefused(a, 410)
			if status.Reason != metav1.StatusReasonExpired {
				s.errorf("the reason is %q, want Expired", status.Reason)
			}
			if status.Continue != "" {
				s.lists(s.list(query("limit", "5"), query("continue", status.Continue)), want[1:])
			}
		}},
	{"pages/token-with-version", Required, concepts, "A token together with a resourceVersion is rejected with 400.",
		[]need{verbs("create", "list")}, func(s *session) {
			s.some(3)
			token := s.token(s.list(query("limit", "1")))
			s.expectRefused(s.list(query("limit", "1"), query("continue", token), query("resourceVersion", "1")), 400,
				422)
		}},
	{"pages/limit-malformed", Recommended, concepts, "A limit that is not a number is rejected with 400.",
		[]need{verbs("list")}, func(s *session) {
			s.expectRefused(s.list(query("limit", "many")), 400)
		}},
	{"pages/from-cache", Required, concepts, "A limit with resourceVersion=0 succeeds.",
		[]need{verbs("create", "list")}, func(s *session) {
			s.some(2)
			s.want(s.list(query("limit", "1"), query("resourceVersion", "0")), 200)
		}},
	{"pages/exact", Required, concepts, "Pages at an exact resourceVersion show the state at that time.",
		[]need{verbs("create", "list")}, func(s *session) {
			s.some(2)
			last := s.create()
			s.create()
			list := s.want(s.list(query("limit", "2"), query("resourceVersion", last.GetResourceVersion()),
				query("resourceVersionMatch", "Exact")), 200)
			rest := s.want(s.list(query("limit", "5"), query("continue", s.token(list))), 200)
			if n := len(list.items()) + len(rest.items()); n != 3 {
				s.errorf("got %d objects, want 3", n)
			}
		}},
}
