// Package reservation describes the kind Reservation, whose objects a system has that clients write.
package reservation

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"example.com/extension-apiserver/pkg/registry"

	v1 "git.example.org/platform/dbaas/apis/dbaas/v1"
)

// Kind describes what the server does for the kind.
var Kind = registry.Kind[*v1.Reservation]{
	Columns: []registry.Column[*v1.Reservation]{
		{Name: "Description", Value: func(r *v1.Reservation) any { return r.Spec.Description }},
	},
	Source: registry.Cached[*v1.Reservation]{List: all.list, Create: all.create, Update: all.update, Delete: all.remove,
		KeepsMetadata: true},
}

var resource = schema.GroupResource{Group: "dbaas.example.org", Resource: "reservations"}

var all = &book{entries: map[string]*v1.Reservation{}}

// book is the system. It stores all metadata, and its entries are never changed.
type book struct {
	mu      sync.Mutex
	entries map[string]*v1.Reservation // by namespace and name
}

func key(r *v1.Reservation) string { return r.Namespace + "/" + r.Name }

func (b *book) list(context.Context) iter.Seq2[*v1.Reservation, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries := slices.Collect(maps.Values(b.entries))
	return func(yield func(*v1.Reservation, error) bool) {
		for _, r := range entries {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (b *book) create(_ context.Context, r *v1.Reservation) (*v1.Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[key(r)] != nil {
		return nil, apierrors.NewAlreadyExists(resource, r.Name)
	}
	r.UID = uuid.NewUUID()
	b.entries[key(r)] = r
	return r, nil
}

func (b *book) update(_ context.Context, r, old *v1.Reservation) (*v1.Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stored := b.entries[key(r)]
	if stored == nil || !equal(stored, old) {
		return nil, apierrors.NewConflict(resource, r.Name, errors.New("the book has another entry"))
	}
	b.entries[key(r)] = r
	return r, nil
}

// equal compares reservations without their resourceVersions, which the server makes.
func equal(a, b *v1.Reservation) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.ResourceVersion, b.ResourceVersion = "", ""
	return apiequality.Semantic.DeepEqual(a.ObjectMeta, b.ObjectMeta) && apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func (b *book) remove(_ context.Context, r *v1.Reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch stored := b.entries[key(r)]; {
	case stored == nil:
		return apierrors.NewNotFound(resource, r.Name)
	case !equal(stored, r):
		return apierrors.NewConflict(resource, r.Name, errors.New("the book has another entry"))
	}
	delete(b.entries, key(r))
	return nil
}
