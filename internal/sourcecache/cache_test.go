// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// system is a source in a test. Its fields can be changed with set.
type system struct {
	mu    sync.Mutex
	pods  []*example.Pod
	err   error
	panic bool
	hang  bool
	lists int
}

func (s *system) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *system) list(ctx context.Context) iter.Seq2[runtime.Object, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if s.panic {
		panic("no system")
	}
	hang, err, pods := s.hang, s.err, s.pods
	return func(yield func(runtime.Object, error) bool) {
		if hang {
			<-ctx.Done()
		}
		for _, pod := range pods {
			if !yield(pod, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func pod(name, node string) *example.Pod {
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: example.PodSpec{NodeName: node}}
}

var podsResource = schema.GroupResource{Resource: "pods"}

// start returns the storage of a source, which is polled every minute and served for three.
func start(t *testing.T, config Config) *served {
	t.Helper()
	config.Resource = podsResource
	config.Interval, config.MaxAge = time.Minute, 3*time.Minute
	if config.MaxBytes == 0 {
		config.MaxBytes = 1 << 20
	}
	config.Prepare = func(obj runtime.Object) (runtime.Object, error) {
		given, ok := obj.(*example.Pod)
		if !ok || given == nil {
			return nil, errors.New("invalid object")
		}
		return given.DeepCopy(), nil
	}
	config.Validate = func(obj runtime.Object) error {
		if obj.(*example.Pod).Name == "" {
			return errors.New("invalid object")
		}
		return nil
	}
	cache := New(config)
	cache.uncached = true
	scheme := runtime.NewScheme()
	if err := errors.Join(example.AddToScheme(scheme), examplev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	backend := &storagebackend.ConfigForResource{Config: storagebackend.Config{Codec: codec, Prefix: "/registry"},
		GroupResource: podsResource}
	s, destroy, err := cache.Decorate(backend, "/pods", func(obj runtime.Object) (string, error) {
		return "/pods/" + obj.(*example.Pod).Name, nil
	}, func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} },
		storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); destroy(); <-done })
	return s.(*served)
}

// pods returns the names and nodes of a list, or its error.
func pods(ctx context.Context, s storage.Interface, version string) string {
	list := &example.PodList{}
	options := storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: version}
	if err := s.GetList(ctx, "/pods/", options, list); err != nil {
		return reason(err)
	}
	var all []string
	for _, p := range list.Items {
		all = append(all, p.Name+"="+p.Spec.NodeName)
	}
	return strings.Join(all, " ")
}

func reason(err error) string { return fmt.Sprintf("%s: %v", apierrors.ReasonForError(err), err) }

// TestStates checks what is served while a source works, fails, recovers and hangs.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{err: errors.New("it is down")}
		s := start(t, Config{List: source.list})
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := pods(t.Context(), s, ""); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		expect("before the first list", "ServiceUnavailable: read pods: it is down")
		source.set(func() { source.err, source.pods = nil, []*example.Pod{pod("a", "1")} })
		<-time.After(2 * time.Second)
		expect("after the first retry", "a=1")
		source.set(func() { source.pods = []*example.Pod{pod("a", "2"), pod("b", "1")} })
		<-time.After(time.Minute)
		expect("after a poll", "a=2 b=1")

		source.set(func() { source.pods, source.err = []*example.Pod{pod("a", "3")}, errors.New("page 2: it is down") })
		<-time.After(2 * time.Minute)
		expect("after an incomplete list", "a=2 b=1")
		events, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute + time.Second)
		expect("when the copy is too old", "ServiceUnavailable: read pods: the copy is 3m")
		expect("when the copy is too old", "and the limit is 3m0s: page 2: it is down")
		for range events.ResultChan() {
		}
		if _, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Predicate: storage.Everything}); !apierrors.
			IsServiceUnavailable(err) {
			t.Errorf("watch when the copy is too old: got %v, want 503", err)
		}
		if err := s.Get(t.Context(), "/pods/a", storage.GetOptions{}, &example.Pod{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("get when the copy is too old: got %v, want 503", err)
		}
		source.set(func() { source.pods, source.err = nil, nil })
		<-time.After(2 * time.Minute)
		expect("after it recovered without objects", "")

		source.set(func() { source.hang = true })
		<-time.After(4 * time.Minute)
		expect("when it does not respond", "context deadline exceeded")
		source.set(func() { source.hang, source.panic = false, true })
		<-time.After(4 * time.Minute)
		expect("when it panics", "the source panicked: no system")
	})
}

// TestInvalidLists checks that a list with something invalid changes nothing.
func TestInvalidLists(t *testing.T) {
	for _, c := range []struct {
		name string
		list func(context.Context) iter.Seq2[runtime.Object, error]
		want string
	}{
		{"duplicate", (&system{pods: []*example.Pod{pod("a", ""), pod("a", "")}}).list, "two objects have the key /pods/a"},
		{"nil", (&system{pods: []*example.Pod{nil}}).list, "invalid object"},
		{"no name", (&system{pods: []*example.Pod{pod("", "")}}).list, "invalid object"},
		{"a million objects", func(context.Context) iter.Seq2[runtime.Object, error] {
			return func(yield func(runtime.Object, error) bool) {
				for i := range 1_000_000 {
					if !yield(pod(fmt.Sprint(i), ""), nil) {
						return
					}
				}
				panic("all were read")
			}
		}, "more than 1 MiB, which is the limit, in the first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, Config{List: c.list})
				synctest.Wait()
				if got := pods(t.Context(), s, ""); !strings.Contains(got, c.want) {
					t.Errorf("got %s, want %s", got, c.want)
				}
			})
		})
	}
}

// TestForeignVersions checks that a resourceVersion or continue token of another replica gets 410
// after the source was read again, or 503 if it cannot be read.
func TestForeignVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "1"), pod("b", "1")}}
		s, other := start(t, Config{List: source.list}), start(t, Config{List: source.list})
		synctest.Wait()
		options := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
		options.Predicate.Limit = 1
		page := &example.PodList{}
		if err := other.GetList(t.Context(), "/pods/", options, page); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		source.set(func() { source.pods = []*example.Pod{pod("a", "2")} })
		if got := pods(t.Context(), s, page.ResourceVersion); !strings.HasPrefix(got, "Expired: ") {
			t.Errorf("list with the resourceVersion of another replica: got %s, want 410", got)
		}
		if got := pods(t.Context(), s, ""); got != "a=2" {
			t.Errorf("the next list: got %s, want what the source has", got)
		}
		options.Predicate.Continue = page.Continue
		if err := s.GetList(t.Context(), "/pods/", options, &example.PodList{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("continue with the token of another replica: got %v, want 410", err)
		}
		<-time.After(51 * time.Second) // the other one has polled again
		if err := other.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true,
			Predicate: storage.Everything}, page); err != nil {
			t.Fatal(err)
		}
		if got := pods(t.Context(), other, ""); got != "a=2" {
			t.Errorf("the other replica has %s", got)
		}
		source.set(func() { source.err = errors.New("it is down") })
		if _, err := s.Watch(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything,
			ResourceVersion: page.ResourceVersion}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("watch from another replica while the source is down: got %v, want 503", err)
		}
		before := 0
		source.set(func() { before, source.err = source.lists, nil })
		var unavailable atomic.Int64
		for range 100 {
			go func() {
				if strings.HasPrefix(pods(t.Context(), s, page.ResourceVersion), "ServiceUnavailable: ") {
					unavailable.Add(1)
				}
			}()
		}
		<-time.After(5 * time.Second)
		if n := unavailable.Load(); n != 100-maxRefreshing {
			t.Errorf("%d of 100 requests get 503, want all but %d", n, maxRefreshing)
		}
		source.set(func() {
			if polls := source.lists - before; polls > 6 {
				t.Errorf("100 requests caused %d polls in 5 s, want at most one each second", polls)
			}
		})
	})
}

// TestVisible checks that a user sees only what the filter selects, and the garbage collector all.
func TestVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "alice"), pod("b", "bob")}}
		s := start(t, Config{List: source.list, Visible: func(u user.Info, obj runtime.Object) bool {
			return obj.(*example.Pod).Spec.NodeName == u.GetName()
		}})
		synctest.Wait()
		for name, want := range map[string]string{"alice": "a=alice", "bob": "b=bob", "eve": "",
			"system:serviceaccount:kube-system:generic-garbage-collector": "a=alice b=bob"} {
			ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: name})
			if got := pods(ctx, s, ""); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	})
}

// TestWrites checks that writes change the source and the copy, that a poll that began before does
// not undo them, and that errors of the source reach the client.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "1"), pod("b", "1")}}
		fail := error(nil)
		var calls []string
		s := start(t, Config{
			List: source.list,
			Create: func(_ context.Context, obj runtime.Object) (runtime.Object, error) {
				calls = append(calls, "create "+obj.(*example.Pod).Name)
				obj.(*example.Pod).Spec.Hostname = "of the source"
				return obj, fail
			},
			Update: func(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
				calls = append(calls, fmt.Sprintf("update %s from %s", obj.(*example.Pod).Spec.NodeName,
					old.(*example.Pod).Spec.NodeName))
				return obj, fail
			},
			Delete: func(_ context.Context, obj runtime.Object) error {
				calls = append(calls, "delete "+obj.(*example.Pod).Name)
				return fail
			},
		})
		synctest.Wait()
		update := func(node string, out *example.Pod) error {
			return s.GuaranteedUpdate(t.Context(), "/pods/a", out, false, nil,
				func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
					input.(*example.Pod).Spec.NodeName = node
					return input, nil, nil
				}, nil)
		}
		remove := func() error {
			return s.Delete(t.Context(), "/pods/b", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil,
				storage.DeleteOptions{})
		}
		if err := update("1", &example.Pod{}); err != nil || len(calls) > 0 {
			t.Errorf("an update without effect: got %v and the calls %v, want none", err, calls)
		}
		// A poll that has begun, and returns what was before the writes.
		source.set(func() { source.hang = true })
		<-time.After(time.Minute + time.Second)
		created, updated := &example.Pod{}, &example.Pod{}
		if err := errors.Join(s.Create(t.Context(), "/pods/c", pod("c", "1"), created, 0), update("2", updated),
			remove()); err != nil {
			t.Fatal(err)
		}
		if created.Spec.Hostname != "of the source" || created.ResourceVersion == "" || updated.Spec.NodeName != "2" {
			t.Errorf("got %v and %v, want what the source returned", created, updated)
		}
		if err := s.cache.replace(t.Context(), time.Now().Add(-time.Second),
			(&system{pods: source.pods}).list(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := pods(t.Context(), s, ""); got != "a=2 c=1" {
			t.Errorf("after a poll that began before the writes: got %s, want them", got)
		}
		if diff := cmp.Diff([]string{"create c", "update 2 from 1", "delete b"}, calls); diff != "" {
			t.Errorf("calls of the source (-want +got):\n%s", diff)
		}
		fail = apierrors.NewConflict(podsResource, "a", errors.New("somebody changed it"))
		if err := update("3", updated); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want the conflict of the source", err)
		}
		fail = errors.New("disk full")
		if err := s.Create(t.Context(), "/pods/d", pod("d", "1"), created, 0); !apierrors.IsInternalError(err) ||
			!strings.Contains(err.Error(), "disk full") {
			t.Errorf("got %v, want 500 with the error of the source", err)
		}
		if err := s.Create(t.Context(), "/pods/a", pod("a", "1"), created, 0); !storage.IsExist(err) {
			t.Errorf("create an object that exists: got %v, want an error", err)
		}
	})
}

// TestWatch checks a source that reports its changes.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan func(context.Context, *Cache) error)
		s := start(t, Config{Watch: func(ctx context.Context, c *Cache) error {
			if err := c.Replace(ctx, (&system{pods: []*example.Pod{pod("a", "1")}}).list(ctx)); err != nil {
				return err
			}
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case change := <-changes:
					if err := change(ctx, c); err != nil {
						return err
					}
				}
			}
		}})
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := pods(t.Context(), s, ""); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		expect("a=1")
		changes <- func(ctx context.Context, c *Cache) error { return c.Put(ctx, pod("b", "1")) }
		expect("a=1 b=1")
		changes <- func(ctx context.Context, c *Cache) error {
			return errors.Join(c.Put(ctx, pod("b", "2")), c.Remove(pod("a", "")))
		}
		expect("b=2")
		for range 60 {
			<-time.After(time.Minute)
			changes <- func(_ context.Context, c *Cache) error { c.Confirm(); return nil }
		}
		expect("b=2")
		<-time.After(80 * time.Second)
		expect("b=2")
		<-time.After(20 * time.Second)
		expect("a=1") // it reported nothing, and was called again
		changes <- func(ctx context.Context, c *Cache) error {
			return errors.Join(c.Put(ctx, pod("b", "2")), c.Remove(pod("a", "")))
		}
		changes <- func(ctx context.Context, c *Cache) error {
			if err := c.Put(ctx, pod("", "")); err == nil {
				t.Error("an invalid object is accepted")
			}
			return nil // the source ignores the error
		}
		expect("b=2")
		<-time.After(2 * time.Second)
		expect("a=1") // its context has ended, and it was called again
	})
}

// TestSilentWatch checks that the copy is not served forever if Watch hangs, and ignores its context.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		s := start(t, Config{Watch: func(ctx context.Context, c *Cache) error {
			if err := c.Replace(ctx, (&system{pods: []*example.Pod{pod("a", "1")}}).list(ctx)); err != nil {
				return err
			}
			<-hang
			return nil
		}})
		synctest.Wait()
		<-time.After(2 * time.Minute)
		if got := pods(t.Context(), s, ""); !strings.Contains(got, "a=1") {
			t.Errorf("got %s within MaxAge, want a=1", got)
		}
		<-time.After(61 * time.Second)
		if got := pods(t.Context(), s, ""); !strings.Contains(got, "the source has not responded for 3m1s") {
			t.Errorf("got %s after MaxAge, want an error with its cause", got)
		}
	})
}
