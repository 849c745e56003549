// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/sample/apis/workshop"
)

// refusing is a storage that answers everything with one error.
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

// TestClientErrors: what the client did wrong is answered as that, with the field; what it did not, is not.
func TestClientErrors(t *testing.T) {
	garbage := &workshop.Gadget{ObjectMeta: metav1.ObjectMeta{Name: "g", ResourceVersion: "abc"}}
	_, parse := storage.APIObjectVersioner{}.ParseResourceVersion("abc")
	down := errors.New("etcd is down")
	for _, tc := range []struct {
		name  string
		err   error
		do    func(storage.Interface) error
		field string
	}{
		{"get", parse, func(s storage.Interface) error {
			return s.Get(t.Context(), "/gadgets/g", storage.GetOptions{},
				nil)
		}, "resourceVersion"},
		{"get, not the client", down, func(s storage.Interface) error {
			return s.Get(t.Context(), "/gadgets/g",
				storage.GetOptions{}, nil)
		}, ""},
		{"watch", parse, func(s storage.Interface) error {
			_, err := s.Watch(t.Context(), "/gadgets/g", storage.ListOptions{})
			return err
		}, "resourceVersion"},
		{"watch, not the client", down, func(s storage.Interface) error {
			_, err := s.Watch(t.Context(), "/gadgets/g", storage.ListOptions{})
			return err
		}, ""},
		{"create", storage.ErrResourceVersionSetOnCreate, func(
			s storage.Interface) error {
			return s.Create(t.Context(), "/gadgets/g", nil, nil,
				0)
		}, "metadata.resourceVersion"},
		{"create, not the client", down, func(s storage.Interface) error {
			return s.Create(t.Context(), "/gadgets/g",
				nil, nil, 0)
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
			err := tc.do(clientErrorStorage{refusing{err: tc.err}, workshop.Resource("gadgets")})
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
	err := clientErrorStorage{refusing{}, workshop.Resource("gadgets")}.GetList(t.Context(), "/gadgets/",
		storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: -1}}, nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "limit: Invalid value: -1") {
		t.Errorf("negative limit: got %v, want Invalid", err)
	}
	if version, err := (clientErrorStorage{refusing{}, workshop.Resource("gadgets")}).Versioner().ObjectResourceVersion(
		&workshop.Gadget{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}); version != 7 || err != nil {
		t.Errorf("resourceVersion 7: got %d and error %v, want 7", version, err)
	}
}
