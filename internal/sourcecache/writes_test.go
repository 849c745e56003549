// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"fmt"
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
)

// apply updates a pod, or creates it if it does not exist, as server-side apply does.
func apply(ctx context.Context, s *served, name, node string) error {
	return s.GuaranteedUpdate(ctx, "/pods/"+name, &example.Pod{}, true, nil,
		func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
			return pod(name, node), nil, nil
		}, nil)
}

// TestApply checks that apply creates an object that does not exist, and changes no object that the
// user may not see.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "alice"), pod("b", "bob")}}
		var calls []string
		s := start(t, Config{List: source.list,
			Visible: func(u user.Info, obj runtime.Object) bool { return obj.(*example.Pod).Spec.NodeName == u.GetName() },
			Create: func(_ context.Context, obj runtime.Object) (runtime.Object, error) {
				calls = append(calls, "create "+obj.(*example.Pod).Name)
				return obj, nil
			},
			Update: func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
				calls = append(calls, "update "+obj.(*example.Pod).Name)
				return obj, nil
			}})
		synctest.Wait()
		alice := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
		if err := errors.Join(apply(alice, s, "a", "alice"), apply(alice, s, "a", "x"), apply(alice, s, "c", "alice")); err != nil {
			t.Fatal(err)
		}
		if err := apply(alice, s, "b", "alice"); !storage.IsExist(err) {
			t.Errorf("apply an object of another user: got %v, want that it exists", err)
		}
		if diff := cmp.Diff([]string{"update a", "create c"}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		s.cache.Create = nil
		if err := apply(alice, s, "d", "alice"); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("apply a new object without Create: got %v, want 405", err)
		}
	})
}

// TestConflict checks that an update after a conflict at the source is repeated with its new object.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, always := &system{pods: []*example.Pod{pod("a", "1")}}, false
		var olds []string
		s := start(t, Config{List: source.list,
			Update: func(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
				olds = append(olds, old.(*example.Pod).Spec.NodeName)
				if old.(*example.Pod).Spec.NodeName == "1" || always {
					return nil, apierrors.NewConflict(podsResource, "a", errors.New("it is newer"))
				}
				return obj, nil
			}})
		synctest.Wait()
		source.set(func() { source.pods = []*example.Pod{pod("a", "2")} })
		if err := apply(t.Context(), s, "a", "3"); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"1", "2"}, olds); diff != "" {
			t.Errorf("old objects (-want +got):\n%s", diff)
		}
		always = true
		if err := apply(t.Context(), s, "a", "4"); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
	})
}

// TestDeletionConflict checks that a deletion after a conflict at the source is repeated with its new
// object, unless its finalizers have changed.
func TestDeletionConflict(t *testing.T) {
	for name, c := range map[string]struct {
		finalizers []string // of the new object
		always     bool     // conflicts
		olds       []string
		conflict   bool
	}{
		"another field":    {nil, false, []string{"1", "2"}, false},
		"another conflict": {nil, true, []string{"1", "2"}, true},
		"a new finalizer":  {[]string{"example.org/f"}, false, []string{"1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &system{pods: []*example.Pod{pod("a", "1")}}
				var olds []string
				s := start(t, Config{List: source.list, Delete: func(_ context.Context, obj runtime.Object) error {
					olds = append(olds, obj.(*example.Pod).Spec.NodeName)
					if obj.(*example.Pod).Spec.NodeName == "1" || c.always {
						return apierrors.NewConflict(podsResource, "a", errors.New("it is newer"))
					}
					source.set(func() { source.pods = nil })
					return nil
				}})
				synctest.Wait()
				changed := pod("a", "2")
				changed.Finalizers = c.finalizers
				source.set(func() { source.pods = []*example.Pod{changed} })
				err := s.Delete(t.Context(), "/pods/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil,
					storage.DeleteOptions{})
				if apierrors.IsConflict(err) != c.conflict || err != nil && !c.conflict {
					t.Errorf("got %v, want a conflict: %t", err, c.conflict)
				}
				if diff := cmp.Diff(c.olds, olds); diff != "" {
					t.Errorf("deleted objects (-want +got):\n%s", diff)
				}
				if exists := pods(t.Context(), s, "") != ""; exists != c.conflict {
					t.Errorf("the object exists: %t, want %t", exists, c.conflict)
				}
			})
		})
	}
}

// TestPanics checks that a panic in a function of the source is an error of the request.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "1")}}
		s := start(t, Config{List: source.list, Visible: func(user.Info, runtime.Object) bool { panic("no rule") },
			Create: func(context.Context, runtime.Object) (runtime.Object, error) { panic("no system") }})
		synctest.Wait()
		ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
		if got := pods(ctx, s, ""); got != "" {
			t.Errorf("got %s, want no object if Visible panics", got)
		}
		events, err := s.Watch(ctx, "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		events.Stop()
		if err := s.Create(ctx, "/pods/b", pod("b", ""), &example.Pod{}, 0); !apierrors.IsInternalError(err) ||
			!strings.Contains(err.Error(), "the source panicked: no system") {
			t.Errorf("got %v, want 500", err)
		}
	})
}

// TestRejectedWrites checks which writes do not reach the source.
func TestRejectedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "1")}}
		s := start(t, Config{List: source.list,
			Create: func(_ context.Context, obj runtime.Object) (runtime.Object, error) {
				t.Error("Create is called")
				return obj, nil
			},
			Update: func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
				t.Error("Update is called")
				return obj, nil
			}})
		synctest.Wait()
		finalizer := pod("b", "")
		finalizer.Finalizers = []string{"example.org/f"}
		if err := s.Create(t.Context(), "/pods/b", finalizer, &example.Pod{}, 0); !apierrors.IsBadRequest(err) {
			t.Errorf("create with a finalizer: got %v, want 400", err)
		}
		large := pod("b", strings.Repeat("x", 1<<20))
		if err := s.Create(t.Context(), "/pods/b", large, &example.Pod{}, 0); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("create an object above the limit: got %v, want 413", err)
		}
		if err := s.GuaranteedUpdate(t.Context(), "/pods/a", &example.Pod{}, false, nil,
			func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				obj.(*example.Pod).Finalizers = finalizer.Finalizers
				return obj, nil, nil
			}, nil); !apierrors.IsBadRequest(err) {
			t.Errorf("update with a finalizer: got %v, want 400", err)
		}
		if err := s.Delete(t.Context(), "/pods/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil,
			storage.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("delete without Delete: got %v, want 405", err)
		}
	})
}

// TestChurn checks that a source whose objects change too fast is slowed down, and its watches get all
// that is applied.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := 0
		source := &system{}
		grow := func() {
			version++
			source.pods = []*example.Pod{pod("a", fmt.Sprint(version)+strings.Repeat("x", 900<<10))}
		}
		source.set(grow)
		s := start(t, Config{List: source.list})
		synctest.Wait()
		began := time.Now()
		for range 3 {
			source.set(grow)
			s.cache.requestPoll()
			want := fmt.Sprint("a=", version)
			for !strings.HasPrefix(pods(t.Context(), s, ""), want) {
				<-time.After(time.Second)
			}
		}
		if took := time.Since(began); took < 2*history {
			t.Errorf("3 changes of most of the limit were applied within %s", took)
		}
	})
}
