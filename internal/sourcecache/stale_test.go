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
	"k8s.io/apiserver/pkg/warning"
)

// request returns the context of a request.
func request(ctx context.Context, name, verb string) context.Context {
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: name})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{Verb: verb, IsResourceRequest: true})
}

// changing is a source whose functions change its objects. The node of a pod is its version.
type changing struct {
	system
	calls []string
}

func (c *changing) config() Config {
	change := func(call, name string, old runtime.Object, pods ...*example.Pod) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, call+" "+name)
		rest, stored := []*example.Pod{}, (*example.Pod)(nil)
		for _, p := range c.pods {
			if p.Name != name {
				rest = append(rest, p)
			} else {
				stored = p
			}
		}
		switch {
		case old == nil && stored != nil:
			return apierrors.NewAlreadyExists(podsResource, name)
		case old != nil && (stored == nil || stored.Spec.NodeName != old.(*example.Pod).Spec.NodeName):
			return apierrors.NewConflict(podsResource, name, errors.New("it has another version"))
		}
		c.pods = append(rest, pods...)
		return nil
	}
	return Config{List: c.list,
		Version: func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName },
		Create: func(_ context.Context, obj runtime.Object) (runtime.Object, error) {
			p := obj.(*example.Pod)
			return p, change("create", p.Name, nil, p)
		},
		Update: func(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
			p := obj.(*example.Pod)
			return p, change("update", p.Name, old, p)
		},
		Delete: func(_ context.Context, obj runtime.Object) error {
			return change("delete", obj.(*example.Pod).Name, obj)
		}}
}

// TestStaleCopy checks that the source is read again before a client acts on something that the copy
// does not have, because another replica may have served it.
func TestStaleCopy(t *testing.T) {
	const collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	get := func(ctx context.Context, s *served) error {
		return s.Get(ctx, "/pods/b", storage.GetOptions{}, &example.Pod{})
	}
	for name, c := range map[string]struct {
		user, verb string
		act        func(ctx context.Context, s *served) error
		want       string // the error
		again      bool   // whether the source is read again
		calls      []string
	}{
		"a read":                          {"alice", "get", get, "not found", false, nil},
		"a read of the garbage collector": {collector, "get", get, "", true, nil},
		"a list of the garbage collector": {collector, "list", func(ctx context.Context, s *served) error {
			if got := pods(ctx, s, ""); got != "a=2 b=1" {
				return errors.New(got)
			}
			return nil
		}, "", true, nil},
		"the read before a deletion": {"alice", "delete", get, "", true, nil},
		"a deletion": {"alice", "delete", func(ctx context.Context, s *served) error {
			return s.Delete(ctx, "/pods/b", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		}, "", true, []string{"delete b"}},
		"an apply of an object that exists": {"alice", "patch", func(ctx context.Context, s *served) error {
			return apply(ctx, s, "b", "3")
		}, "", true, []string{"create b", "update b"}},
		"an apply that changes nothing in the copy": {"alice", "patch", func(ctx context.Context, s *served) error {
			return apply(ctx, s, "a", "1")
		}, "", true, []string{"update a"}},
		"an update of an object that exists": {"alice", "update", func(ctx context.Context, s *served) error {
			return s.GuaranteedUpdate(ctx, "/pods/b", &example.Pod{}, false, nil,
				func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
					obj.(*example.Pod).Spec.NodeName = "3"
					return obj, nil, nil
				}, nil)
		}, "", true, []string{"update b"}},
		"an update of an old object": {"alice", "update", func(ctx context.Context, s *served) error {
			return apply(ctx, s, "a", "3")
		}, "", true, []string{"update a", "update a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &changing{system: system{pods: []*example.Pod{pod("a", "1")}}}
				s := start(t, source.config())
				<-time.After(10 * time.Second)
				source.set(func() { source.pods = []*example.Pod{pod("a", "2"), pod("b", "1")} })
				err := c.act(request(t.Context(), c.user, c.verb), s)
				if fmt.Sprint(err) != c.want && (c.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if again := source.lists > 1; again != c.again {
					t.Errorf("the source is read again: %t, want %t", again, c.again)
				}
				if diff := cmp.Diff(c.calls, source.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestUnreadableSource checks that a client which acts on what the copy does not have gets 503 if the
// source cannot be read again.
func TestUnreadableSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &changing{system: system{pods: []*example.Pod{pod("a", "1")}}}
		s := start(t, source.config())
		<-time.After(10 * time.Second)
		source.set(func() { source.err = errors.New("it is down") })
		for name, err := range map[string]error{
			"read":     s.Get(request(t.Context(), "system:kube-controller-manager", "get"), "/pods/a", storage.GetOptions{}, &example.Pod{}),
			"deletion": s.Get(request(t.Context(), "alice", "delete"), "/pods/b", storage.GetOptions{}, &example.Pod{}),
			"apply":    apply(t.Context(), s, "a", "1"),
		} {
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "it is down") {
				t.Errorf("%s: got %v, want 503 with the error of the source", name, err)
			}
		}
	})
}

// TestVersions checks that an update that changes an object but not its version fails.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &changing{system: system{pods: []*example.Pod{pod("a", "1")}}}
		config := source.config()
		config.Version = func(runtime.Object) string { return "7" }
		s := start(t, config)
		synctest.Wait()
		if err := apply(t.Context(), s, "a", "2"); !apierrors.IsInternalError(err) ||
			!strings.Contains(err.Error(), `the version of the object was "7", and is "7" after the update`) {
			t.Errorf("got %v, want 500 with the version", err)
		}
	})
}

// TestManyForeignVersions checks that a resourceVersion of a replica that has made more changes than
// milliseconds have passed leads to a new list too.
func TestManyForeignVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{}
		for i := range 10_000 {
			source.pods = append(source.pods, pod(fmt.Sprint("p", i), ""))
		}
		config := Config{List: source.list, MaxBytes: 64 << 20}
		s, other := start(t, config), start(t, config)
		synctest.Wait()
		list := &example.PodList{}
		if err := other.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything},
			list); err != nil {
			t.Fatal(err)
		}
		source.set(func() { source.pods = []*example.Pod{pod("a", "2")} })
		if got := pods(t.Context(), s, list.ResourceVersion); !strings.HasPrefix(got, "Expired: ") {
			t.Errorf("got %s, want 410", got)
		}
		if got := pods(t.Context(), s, ""); got != "a=2" {
			t.Errorf("the next list: got %s, want what the source has", got)
		}
	})
}

// TestForgottenWrites checks that a cache does not remember the writes that no list can undo.
func TestForgottenWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &changing{}
		config := source.config()
		config.List = nil
		config.Watch = func(ctx context.Context, c *Cache) error {
			err := c.Replace(ctx, source.list(ctx))
			<-ctx.Done()
			return err
		}
		s := start(t, config)
		synctest.Wait()
		for i := range 10 {
			if err := s.Create(t.Context(), fmt.Sprint("/pods/p", i), pod(fmt.Sprint("p", i), "1"), &example.Pod{}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.cache.written); n > 0 {
			t.Errorf("the cache remembers %d writes, want none", n)
		}
	})
}

// TestHungPoll checks that responses have a warning while the source does not respond to a poll.
func TestHungPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &system{pods: []*example.Pod{pod("a", "1")}}
		s := start(t, Config{List: source.list})
		synctest.Wait()
		source.set(func() { source.hang = true })
		<-time.After(2*time.Minute + time.Second)
		recorded := &warnings{}
		if got := pods(warning.WithWarningRecorder(t.Context(), recorded), s, ""); got != "a=1" {
			t.Errorf("got %s, want a=1", got)
		}
		if got := strings.Join(*recorded, " "); !strings.Contains(got, "2m1s old: the source has not responded for 1m1s") {
			t.Errorf("got the warnings %q, want the age of the copy", got)
		}
	})
}
