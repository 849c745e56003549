// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/sample/apis/workshop"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// refusing is a storage that returns the same error for every call.
type refusing struct {
	storage.Interface
	err error
}

func (r refusing) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
func (r refusing) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return r.err
}
func (r refusing) Get(context.Context, string, storage.GetOptions, runtime.Object) error {
	return r.err
}
func (r refusing) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return r.err
}
func (r refusing) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, r.err
}

func (r refusing) GuaranteedUpdate(context.Context, string, runtime.Object, bool, *storage.Preconditions,
	storage.UpdateFunc, runtime.Object) error {
	return r.err
}

// TestClientErrors: an error that the client caused is Invalid and names the field; any other
// error is unchanged.
func TestClientErrors(t *testing.T) {
	garbage := &v1.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "g", ResourceVersion: "abc"}}
	_, parse := storage.APIObjectVersioner{}.ParseResourceVersion("abc")
	down := errors.New("etcd is down")
	for _, tc := range []struct {
		name  string
		err   error
		do    func(storage.Interface) error
		field string
	}{
		{"get", parse, func(s storage.Interface) error {
			return s.Get(t.Context(), "/gadgets/g", storage.GetOptions{}, nil)
		}, "resourceVersion"},
		{"get, not the client", down, func(s storage.Interface) error {
			return s.Get(t.Context(), "/gadgets/g", storage.GetOptions{}, nil)
		}, ""},
		{"watch", parse, func(s storage.Interface) error {
			_, err := s.Watch(t.Context(), "/gadgets/g", storage.ListOptions{})
			return err
		}, "resourceVersion"},
		{"watch, not the client", down, func(s storage.Interface) error {
			_, err := s.Watch(t.Context(), "/gadgets/g", storage.ListOptions{})
			return err
		}, ""},
		{"create", storage.ErrResourceVersionSetOnCreate, func(s storage.Interface) error {
			return s.Create(t.Context(), "/gadgets/g", nil, nil, 0)
		}, "metadata.resourceVersion"},
		{"create, not the client", down, func(s storage.Interface) error {
			return s.Create(t.Context(), "/gadgets/g", nil, nil, 0)
		}, ""},
		{"list", down, func(s storage.Interface) error {
			return s.GetList(t.Context(), "/gadgets/",
				storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 1}}, nil)
		}, ""},
		{"patch", errors.New("map: map[count:1] does not contain declared merge key: name"),
			func(s storage.Interface) error {
				return s.GuaranteedUpdate(t.Context(), "/gadgets/g", nil, false, nil, nil, nil)
			}, "patch"},
		{"update, not the client", down, func(s storage.Interface) error {
			return s.GuaranteedUpdate(t.Context(), "/gadgets/g", nil, false, nil, nil, nil)
		}, ""},
		{"update", nil, func(s storage.Interface) error {
			_, err := s.Versioner().ObjectResourceVersion(garbage)
			return err
		}, "metadata.resourceVersion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do(clientErrorStorage{refusing{err: tc.err}, workshop.Resource("gadgets"), &atomic.Uint64{}, false})
			if tc.field == "" {
				if !errors.Is(err, down) {
					t.Errorf("got %v, want the error of the storage", err)
				}
				return
			}
			var status apierrors.APIStatus
			if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
				t.Fatalf("got %v, want Invalid", err)
			}
			details := status.Status().Details
			if diff := cmp.Diff([]string{"g", "gadgets", tc.field},
				[]string{details.Name, details.Kind, details.Causes[0].Field}); diff != "" {
				t.Errorf("name, kind and field (-want +got):\n%s", diff)
			}
		})
	}
	err := clientErrorStorage{refusing{}, workshop.Resource("gadgets"), &atomic.Uint64{}, false}.GetList(t.Context(), "/gadgets/",
		storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: -1}}, nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "limit: Invalid value: -1") {
		t.Errorf("negative limit: got %v, want Invalid", err)
	}
	if version, err := (clientErrorStorage{refusing{}, workshop.Resource("gadgets"), &atomic.Uint64{}, false}).Versioner().ObjectResourceVersion(
		&v1.Gadget{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}); version != 7 || err != nil {
		t.Errorf("resourceVersion 7: got %d and error %v, want 7", version, err)
	}
}

// atRevision is a storage whose etcd is at a fixed revision. asked counts the reads of the
// revision.
type atRevision struct {
	refusing
	revision uint64
	asked    *int
}

func (a atRevision) GetCurrentResourceVersion(context.Context) (uint64, error) {
	*a.asked++
	return a.revision, nil
}

// TestFutureVersion: a resourceVersion that etcd has not reached is an error at once. The storage
// reads etcd's revision only for a later version than any before.
func TestFutureVersion(t *testing.T) {
	asked := 0
	s := clientErrorStorage{atRevision{revision: 7, asked: &asked}, workshop.Resource("gadgets"), &atomic.Uint64{}, false}
	list := func(version string, match metav1.ResourceVersionMatch) error {
		return s.GetList(t.Context(), "/gadgets/", storage.ListOptions{ResourceVersion: version,
			ResourceVersionMatch: match}, &v1.GadgetList{})
	}
	watches := func(version string, initial *bool) error {
		_, err := s.Watch(t.Context(), "/gadgets/", storage.ListOptions{ResourceVersion: version, SendInitialEvents: initial})
		return err
	}
	for _, tc := range []struct {
		name   string
		send   func() error
		future bool
		asked  int
	}{
		{"no version", func() error { return list("", "") }, false, 0},
		{"any version", func() error { return list("0", "") }, false, 0},
		{"reached", func() error { return list("7", metav1.ResourceVersionMatchNotOlderThan) }, false, 1},
		{"reached before", func() error { return list("6", "") }, false, 1},
		{"future", func() error { return list("8", metav1.ResourceVersionMatchNotOlderThan) }, true, 2},
		{"future of an exact list", func() error { return list("8", metav1.ResourceVersionMatchExact) }, false, 2},
		{"future of a get", func() error {
			return s.Get(t.Context(), "/gadgets/g", storage.GetOptions{ResourceVersion: "8"}, &v1.Gadget{})
		}, true, 3},
		{"future of initial events", func() error { return watches("8", new(true)) }, true, 4},
		{"reached initial events", func() error { return watches("7", new(true)) }, false, 4},
		{"future of a watch", func() error { return watches("8", nil) }, false, 4},
	} {
		err := tc.send()
		if storage.IsTooLargeResourceVersion(err) != tc.future || (err != nil) != tc.future {
			t.Errorf("%s: got %v, want the error of a future version: %t", tc.name, err, tc.future)
		}
		if asked != tc.asked {
			t.Errorf("%s: etcd was asked %d times, want %d", tc.name, asked, tc.asked)
		}
	}
}
