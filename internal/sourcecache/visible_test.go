// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/warning"
)

// owned returns whether the node of a pod has the name of the user.
func owned(u user.Info, obj runtime.Object) bool {
	return obj.(*example.Pod).Spec.NodeName == u.GetName()
}

// startOwned returns the storage of a source with a pod of Alice and one of Bob, and a context with
// Alice as user. A write that reaches the source is an error.
func startOwned(t *testing.T) (context.Context, *system, *served) {
	t.Helper()
	source := &system{pods: []*example.Pod{pod("a", "alice"), pod("b", "bob")}}
	s := start(t, Config{List: source.list, Visible: owned,
		Update: func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
			t.Error("Update is called")
			return obj, nil
		},
		Delete: func(context.Context, runtime.Object) error {
			t.Error("Delete is called")
			return nil
		}})
	synctest.Wait()
	return genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"}), source, s
}

// TestVisibleMethods checks that each method of the storage responds as if an object of another user
// did not exist.
func TestVisibleMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, _, s := startOwned(t)
		remove := func(preconditions *storage.Preconditions) error {
			return s.Delete(alice, "/pods/b", &example.Pod{}, preconditions, storage.ValidateAllObjectFunc, nil,
				storage.DeleteOptions{})
		}
		update := func(preconditions *storage.Preconditions) error {
			return s.GuaranteedUpdate(alice, "/pods/b", &example.Pod{}, false, preconditions,
				func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
					t.Errorf("the update sees %v", obj)
					return obj, nil, nil
				}, nil)
		}
		version := "1"
		for name, err := range map[string]error{
			"get":                          s.Get(alice, "/pods/b", storage.GetOptions{}, &example.Pod{}),
			"update":                       update(nil),
			"update with a precondition":   update(&storage.Preconditions{ResourceVersion: &version}),
			"deletion":                     remove(nil),
			"deletion with a precondition": remove(&storage.Preconditions{ResourceVersion: &version}),
		} {
			if !storage.IsNotFound(err) {
				t.Errorf("%s: got %v, want not found", name, err)
			}
		}
		found := pod("b", "bob")
		if err := s.Get(alice, "/pods/b", storage.GetOptions{IgnoreNotFound: true}, found); err != nil || found.Name != "" {
			t.Errorf("get without an error: got %v, %v, want an empty object", found, err)
		}
		list := &example.PodList{}
		if err := s.GetList(alice, "/pods/b", storage.ListOptions{Predicate: storage.Everything}, list); err != nil ||
			len(list.Items) > 0 {
			t.Errorf("list of the name: got %v, %v, want no object", list.Items, err)
		}
		if got := pods(alice, s, ""); got != "a=alice" {
			t.Errorf("list: got %s, want the pod of Alice", got)
		}
	})
}

// TestVisibleEvents checks that a watch sends an object that becomes visible as added, and one that is
// no longer visible as deleted in its last visible state.
func TestVisibleEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, source, s := startOwned(t)
		events, err := s.Watch(alice, "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		for _, c := range []struct {
			pods []*example.Pod
			want []string
		}{
			{[]*example.Pod{pod("a", "alice"), pod("b", "bob")}, []string{"ADDED a=alice"}},
			{[]*example.Pod{pod("a", "alice"), pod("b", "alice")}, []string{"ADDED b=alice"}},
			{[]*example.Pod{pod("a", "alice"), pod("b", "bob")}, []string{"DELETED b=alice"}},
			{[]*example.Pod{pod("a", "alice"), pod("b", "eve"), pod("c", "bob")}, nil},
			{[]*example.Pod{pod("a", "alice"), pod("c", "eve")}, nil},
			{nil, []string{"DELETED a=alice"}},
		} {
			source.set(func() { source.pods = c.pods })
			<-time.After(time.Minute + time.Second)
			synctest.Wait()
			var got []string
			for len(events.ResultChan()) > 0 {
				event := <-events.ResultChan()
				p := event.Object.(*example.Pod)
				got = append(got, string(event.Type)+" "+p.Name+"="+p.Spec.NodeName)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		}
	})
}

// warnings records the warnings of requests.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// TestVisibleErrors checks that users do not see an error of the source, which can name an object, if
// they see different objects.
func TestVisibleErrors(t *testing.T) {
	for name, c := range map[string]struct {
		visible func(user.Info, runtime.Object) bool
		shown   bool
	}{"all users see all": {nil, true}, "users see their own": {owned, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &system{pods: []*example.Pod{pod("a", "alice")}}
				s := start(t, Config{List: source.list, Visible: c.visible})
				synctest.Wait()
				source.set(func() { source.err = errors.New("the pod of Bob is broken") })
				<-time.After(time.Minute + time.Second)
				recorded := &warnings{}
				alice := warning.WithWarningRecorder(genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"}),
					recorded)
				if got := pods(alice, s, ""); got != "a=alice" {
					t.Errorf("got %s, want the pod of Alice", got)
				}
				if got := strings.Join(*recorded, " "); strings.Contains(got, "Bob") != c.shown ||
					!strings.Contains(got, "are 1m1s old") {
					t.Errorf("got the warnings %q, want one with the error: %t", *recorded, c.shown)
				}
				<-time.After(3 * time.Minute)
				err := s.Get(alice, "/pods/a", storage.GetOptions{}, &example.Pod{})
				if !apierrors.IsServiceUnavailable(err) || strings.Contains(err.Error(), "Bob") != c.shown {
					t.Errorf("got %v, want 503 with the error of the source: %t", err, c.shown)
				}
			})
		})
	}
}
