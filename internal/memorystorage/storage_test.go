// SPDX-License-Identifier: Apache-2.0

package memorystorage

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

func newPod() runtime.Object { return &example.Pod{} }

// newStorage returns a storage whose revisions start as those of etcd, since tests use revision 1.
func newStorage() *Storage {
	s := New("/pods", newPod)
	s.revision, s.oldest, s.step = 1, 0, 1
	return s
}

// noTransformer is for tests of the library that also run without a transformer of stored bytes.
type noTransformer struct{ *Storage }

func (noTransformer) UpdatePrefixTransformer(storagetesting.PrefixTransformerModifier) func() {
	return func() {}
}

// compact forgets the changes up to a revision. As in etcd, it takes a revision itself.
func (s *Storage) compact(_ context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	s.increase(t.Context(), t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = revision
	for len(s.history) > 0 && s.history[0].revision <= revision {
		s.history = s.history[1:]
	}
}

// increase does what a change of another resource does in etcd.
func (s *Storage) increase(context.Context, *testing.T) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	close(s.changed)
	s.changed = make(chan struct{})
	return int64(s.revision) //nolint:gosec // < 2^63
}

// noCheck replaces a check of the bytes in etcd.
func noCheck(context.Context, *testing.T, string) {}

// TestStorage runs the tests of k8s.io/apiserver for a storage.Interface, except those for expiry,
// transformers of stored bytes and corrupt objects, and these:
//   - RunTestStats compares the sizes of stored bytes; nothing is stored as bytes.
//   - RunTestGuaranteedUpdateChecksStoredData and RunTestTransformationFailure are for transformers.
//   - RunTestListContinuation and others count the reads from etcd; here they get a check that accepts all.
func TestStorage(t *testing.T) {
	type run = func(context.Context, *testing.T, *Storage)
	plain := func(f func(context.Context, *testing.T, storage.Interface)) run {
		return func(ctx context.Context, t *testing.T, s *Storage) { t.Helper(); f(ctx, t, s) }
	}
	anyCalls := func(*testing.T, uint64, uint64) {}
	for name, test := range map[string]run{
		"Create": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestCreate(ctx, t, s, noCheck)
		},
		"CreateWithKeyExist":                      plain(storagetesting.RunTestCreateWithKeyExist),
		"Get":                                     plain(storagetesting.RunTestGet),
		"UnconditionalDelete":                     plain(storagetesting.RunTestUnconditionalDelete),
		"ConditionalDelete":                       plain(storagetesting.RunTestConditionalDelete),
		"DeleteWithSuggestion":                    plain(storagetesting.RunTestDeleteWithSuggestion),
		"DeleteWithSuggestionAndConflict":         plain(storagetesting.RunTestDeleteWithSuggestionAndConflict),
		"DeleteWithConflict":                      plain(storagetesting.RunTestDeleteWithConflict),
		"DeleteWithSuggestionOfDeletedObject":     plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject),
		"ValidateDeletionWithSuggestion":          plain(storagetesting.RunTestValidateDeletionWithSuggestion),
		"ValidateDeletionWithOnlySuggestionValid": plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid),
		"PreconditionalDeleteWithSuggestion":      plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion),
		"PreconditionalDeleteWithOnlySuggestionPass": plain(
			storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass),
		"List": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestList(ctx, t, s, s.compact, false, nil)
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestConsistentList(ctx, t, s, s.increase, false, true, false)
		},
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestGetListNonRecursive(ctx, t, s.increase, s)
		},
		"GetListRecursivePrefix": plain(storagetesting.RunTestGetListRecursivePrefix),
		"ListContinuation": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestListContinuation(ctx, t, s, anyCalls)
		},
		"ListPaginationRareObject": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestListPaginationRareObject(ctx, t, s, anyCalls)
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, anyCalls)
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
		},
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestGuaranteedUpdate(ctx, t, noTransformer{s}, noCheck)
		},
		"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestListResourceVersionMatch(ctx, t, noTransformer{s})
		},
		"ProgressNotify": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunOptionalTestProgressNotify(ctx, t, s, s.increase)
		},
		"GuaranteedUpdateWithConflict":              plain(storagetesting.RunTestGuaranteedUpdateWithConflict),
		"GuaranteedUpdateWithSuggestionAndConflict": plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict),
		"ListPaging":          plain(storagetesting.RunTestListPaging),
		"NamespaceScopedList": plain(storagetesting.RunTestNamespaceScopedList),
		"CompactRevision": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestCompactRevision(ctx, t, s, s.increase, s.compact)
		},
		"KeySchema": plain(storagetesting.RunTestKeySchema),
		"Watch":     plain(storagetesting.RunTestWatch),
		"WatchFromZero": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestWatchFromZero(ctx, t, s, s.compact)
		},
		"DeleteTriggerWatch":                 plain(storagetesting.RunTestDeleteTriggerWatch),
		"WatchFromNonZero":                   plain(storagetesting.RunTestWatchFromNonZero),
		"DelayedWatchDelivery":               plain(storagetesting.RunTestDelayedWatchDelivery),
		"WatchContextCancel":                 plain(storagetesting.RunTestWatchContextCancel),
		"WatcherTimeout":                     plain(storagetesting.RunTestWatcherTimeout),
		"WatchDeleteEventObjectHaveLatestRV": plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV),
		"WatchInitializationSignal":          plain(storagetesting.RunTestWatchInitializationSignal),
		"ClusterScopedWatch":                 plain(storagetesting.RunTestClusterScopedWatch),
		"NamespaceScopedWatch":               plain(storagetesting.RunTestNamespaceScopedWatch),
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, s *Storage) {
			t.Helper()
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, false)
		},
		"SendInitialEventsBackwardCompatibility": plain(storagetesting.RunSendInitialEventsBackwardCompatibility),
		"WatchSemantics":                         plain(storagetesting.RunWatchSemantics),
		"WatchSemanticInitialEventsExtended":     plain(storagetesting.RunWatchSemanticInitialEventsExtended),
		"WatchListMatchSingle":                   plain(storagetesting.RunWatchListMatchSingle),
	} {
		t.Run(name, func(t *testing.T) { test(t.Context(), t, newStorage()) })
	}
}

// next returns the next event of a watch.
func next(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-events.ResultChan():
		return event
	case <-time.After(10 * time.Second):
		t.Fatal("the watch has sent no event for 10 s")
		return watch.Event{}
	}
}

// TestReplace: only what differs changes, and watches see it.
func TestReplace(t *testing.T) {
	s := New("/pods/", newPod)
	events, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	pods := func(nodes map[string]string) map[string]runtime.Object {
		objects := map[string]runtime.Object{}
		for name, node := range nodes {
			objects["/pods/"+name] = &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: example.PodSpec{NodeName: node}}
		}
		return objects
	}
	for _, c := range []struct {
		pods map[string]string
		want []string
	}{
		{map[string]string{"a": "1", "b": "1", "c": "1"}, []string{"ADDED a 1", "ADDED b 1", "ADDED c 1"}},
		{map[string]string{"a": "1", "b": "2", "d": "1"}, []string{"MODIFIED b 2", "ADDED d 1", "DELETED c 1"}},
		{map[string]string{"a": "1", "b": "2", "d": "1"}, nil},
		{nil, []string{"DELETED a 1", "DELETED b 2", "DELETED d 1"}},
	} {
		if err := s.Replace(pods(c.pods), func(key string) bool { return c.pods[strings.TrimPrefix(key, "/pods/")] != "" }); err != nil {
			t.Fatal(err)
		}
		var got []string
		for range c.want {
			event := next(t, events)
			pod := event.Object.(*example.Pod)
			got = append(got, fmt.Sprintf("%s %s %s", event.Type, pod.Name, pod.Spec.NodeName))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
}

// TestInitialState checks that a watch starts at the state of its call: it sends the changes that
// follow the call, and not their result only.
func TestInitialState(t *testing.T) {
	yes := true
	for range 100 {
		s := New("/pods/", newPod)
		events, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Predicate: storage.Everything, Recursive: true,
			SendInitialEvents: &yes})
		if err == nil {
			err = s.Put("/pods/a", &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.Remove("/pods/a"); next(t, events).Type != watch.Added || next(t, events).Type != watch.Deleted {
			t.Error("a change that followed the call is missing")
		}
		events.Stop()
	}
}

// TestForeignResourceVersions checks that a watch from a resourceVersion that the storage forgot,
// or that is in the future, ends with 410, since changes would be missing; and that the storage
// recognizes the resourceVersions of another one.
func TestForeignResourceVersions(t *testing.T) {
	s, other := New("/pods/", newPod), New("/pods/", newPod)
	for i := range minHistory + 2 {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: example.PodSpec{NodeName: fmt.Sprint(i)}}
		if err := s.Replace(map[string]runtime.Object{"/pods/a": pod}, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	now, err := s.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		version          uint64
		expired, foreign bool
	}{
		{"forgotten", now - (minHistory+1)*s.step, true, false},
		{"oldest", now - minHistory*s.step, false, false},
		{"last but one", now - s.step, false, false},
		{"current", now, false, false},
		{"future", now + s.step, true, true},
		{"of another storage", foreign, foreign > now || foreign < now-minHistory*s.step, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := s.Foreign(c.version); got != c.foreign {
				t.Errorf("foreign: got %t, want %t", got, c.foreign)
			}
			if c.name == "of another storage" || c.name == "current" {
				return // the watch has no event
			}
			events, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Predicate: storage.Everything,
				Recursive: true, ResourceVersion: strconv.FormatUint(c.version, 10)})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			event := next(t, events)
			if expired := apierrors.IsResourceExpired(apierrors.FromObject(event.Object)); expired != c.expired {
				t.Errorf("got %s %v, want 410: %t", event.Type, event.Object, c.expired)
			}
		})
	}
}

// TestFilter checks that get, list and watch find only the selected objects, that a page does not
// name the others, and that a watch sends a deletion when an object is no longer selected.
func TestFilter(t *testing.T) {
	s := New("/pods/", newPod)
	put := func(name, node string) {
		t.Helper()
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: example.PodSpec{NodeName: node}}
		if err := s.Replace(map[string]runtime.Object{"/pods/" + name: pod}, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b-hidden", "c", "d-hidden"} {
		node := "seen"
		if strings.HasSuffix(name, "hidden") {
			node = "hidden"
		}
		put(name, node)
	}
	ctx := WithFilter(t.Context(), func(obj runtime.Object) bool { return obj.(*example.Pod).Spec.NodeName == "seen" })
	if err := s.Get(ctx, "/pods/b-hidden", storage.GetOptions{}, newPod()); !storage.IsNotFound(err) {
		t.Errorf("get a hidden object: got %v, want not found", err)
	}
	list, options := &example.PodList{}, storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	options.Predicate.Limit = 1
	var pages []string
	for {
		if err := s.GetList(ctx, "/pods/", options, list); err != nil {
			t.Fatal(err)
		}
		token, err := base64.RawURLEncoding.DecodeString(list.Continue)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, fmt.Sprintf("%s, continue %t", list.Items[0].Name, list.Continue != ""))
		if strings.Contains(string(token), "hidden") {
			t.Errorf("the token %s names a hidden object", token)
		}
		if list.Continue == "" {
			break
		}
		options.Predicate.Continue = list.Continue
		list = &example.PodList{}
	}
	if diff := cmp.Diff([]string{"a, continue true", "c, continue false"}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	events, err := s.Watch(ctx, "/pods/", storage.ListOptions{Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	var got []string
	read := func(n int) {
		t.Helper()
		for range n {
			event := next(t, events)
			got = append(got, fmt.Sprintf("%s %s %s", event.Type, event.Object.(*example.Pod).Name,
				event.Object.(*example.Pod).Spec.NodeName))
		}
	}
	read(2)
	put("b-hidden", "hidden still")
	put("a", "hidden")
	put("d-hidden", "seen")
	read(2)
	if diff := cmp.Diff([]string{"ADDED a seen", "ADDED c seen", "DELETED a seen", "ADDED d-hidden seen"},
		got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLimitHistory checks that the history has a size limit, that older resourceVersions expire, and
// that watches get a bookmark when the resourceVersion advances.
func TestLimitHistory(t *testing.T) {
	s := New("/pods/", newPod)
	s.LimitHistory(100, func(obj runtime.Object) int64 { return int64(len(obj.(*example.Pod).Spec.NodeName)) })
	var versions []uint64
	for i := range 5 {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: example.PodSpec{NodeName: strings.Repeat(fmt.Sprint(i), 40)}}
		if err := s.Put("/pods/a", pod); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, s.revision)
	}
	if len(s.history) != 2 || s.size != 80 {
		t.Errorf("got %d changes with %d bytes, want 2 with 80", len(s.history), s.size)
	}
	for i, want := range []bool{false, false, true, true, true} {
		if _, _, _, _, ok := s.after(versions[i]); ok != want {
			t.Errorf("changes after version %d: got known %t, want %t", i, ok, want)
		}
	}
	before := s.revision
	events, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Predicate: storage.Everything, Recursive: true,
		ProgressNotify: true, ResourceVersion: strconv.FormatUint(before, 10)})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	<-time.After(50 * time.Millisecond)
	s.Advance()
	if event := next(t, events); event.Type != watch.Bookmark ||
		event.Object.(*example.Pod).ResourceVersion != strconv.FormatUint(s.revision, 10) {
		t.Errorf("got %s %v, want a bookmark of %d", event.Type, event.Object, s.revision)
	}
	if s.revision <= before || s.Foreign(before) || time.Since(Time(s.revision)) > time.Minute {
		t.Errorf("got the revision %d of %s after %d", s.revision, Time(s.revision), before)
	}
}
