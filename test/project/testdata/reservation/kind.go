// Package reservation describes the kind Reservation, whose objects a system has that clients write.
package reservation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

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
		Version: version, KeepsMetadata: true},
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
	if stored == nil || version(stored) != version(old) {
		return nil, apierrors.NewConflict(resource, r.Name, errors.New("the book has another entry"))
	}
	b.entries[key(r)] = r
	return r, nil
}

// version returns the digest of an entry without its resourceVersion, which the server sets.
func version(r *v1.Reservation) string {
	metadata := r.ObjectMeta
	metadata.ResourceVersion = ""
	data, err := json.Marshal([]any{metadata, r.Spec})
	if err != nil {
		panic(err) // the poll or request fails
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

func (b *book) remove(_ context.Context, r *v1.Reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch stored := b.entries[key(r)]; {
	case stored == nil:
		return apierrors.NewNotFound(resource, r.Name)
	case version(stored) != version(r):
		return apierrors.NewConflict(resource, r.Name, errors.New("the book has another entry"))
	}
	delete(b.entries, key(r))
	return nil
}
