// SPDX-License-Identifier: Apache-2.0

// Package objectsizes knows how large stored objects are, from what passes between etcd and the storage of a server.
package objectsizes

import (
	"context"
	"path"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

const (
	// small is the size in bytes up to which objects are not told apart.
	small = 64 << 10
	// remembered is how many larger objects of a resource are.
	remembered = 1000
)

// Sizes are the largest sizes in bytes that objects have had since the server started. They do not shrink: a watch sees
// the value before a change after the one that replaces it. All methods can be called concurrently.
type Sizes struct {
	mutex     sync.Mutex
	resources map[schema.GroupResource]*resource
}

// resource has the largest objects by NAMESPACE/NAME, or NAME. All others have at most the size rest.
type resource struct {
	prefix        string // of keys in etcd
	objects       map[string]int64
	rest, largest int64
}

// New returns Sizes of no resource.
func New() *Sizes { return &Sizes{resources: map[schema.GroupResource]*resource{}} }

// Known returns whether objects of the resource are stored in etcd.
func (s *Sizes) Known(of schema.GroupResource) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.resources[of] != nil
}

// Largest returns the size of the largest object of a resource: 0 if it has none, or they are not stored in etcd.
func (s *Sizes) Largest(of schema.GroupResource) int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r := s.resources[of]; r != nil {
		return r.largest
	}
	return 0
}

// Object returns the size of an object, or more: up to 64 KiB if the object is smaller than that, and up to the size of
// the 1,000th largest object of the resource.
func (s *Sizes) Object(of schema.GroupResource, namespace, name string) int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil {
		return 0
	}
	return min(max(r.rest, r.objects[path.Join(namespace, name)]), r.largest)
}

// Observe returns options for storages whose objects Sizes knows.
func (s *Sizes) Observe(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return observed{getter, s}
}

type observed struct {
	generic.RESTOptionsGetter
	sizes *Sizes
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o observed) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(of, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	if config.Transformer == nil {
		config.Transformer = identity.NewEncryptCheckTransformer() // as the library does
	}
	prefix := path.Join("/", config.Prefix, options.ResourcePrefix) + "/"
	config.Transformer = transformer{config.Transformer, o.sizes.resource(of, prefix), o.sizes}
	options.StorageConfig = &config
	return options, nil
}

// resource returns the one that is known, or begins to know it.
func (s *Sizes) resource(of schema.GroupResource, prefix string) *resource {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.resources[of] == nil {
		s.resources[of] = &resource{prefix: prefix, objects: map[string]int64{}, rest: small}
	}
	return s.resources[of]
}

// transformer implements value.Transformer, through which all values of a storage pass with their keys.
type transformer struct {
	value.Transformer
	resource *resource
	sizes    *Sizes
}

func (t transformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	t.sizes.note(t.resource, key, len(data))
	return t.Transformer.TransformFromStorage(ctx, data, key)
}

func (t transformer) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	t.sizes.note(t.resource, key, len(data))
	return t.Transformer.TransformToStorage(ctx, data, key)
}

func (s *Sizes) note(r *resource, key value.Context, length int) {
	size := int64(length)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r.largest = max(r.largest, size)
	if size <= r.rest {
		return
	}
	name, ok := strings.CutPrefix(string(key.AuthenticatedData()), r.prefix)
	if !ok { // it could be any object
		r.rest = size
		return
	}
	r.objects[name] = max(r.objects[name], size)
	if len(r.objects) > remembered {
		r.forgetSmallest()
	}
}

func (r *resource) forgetSmallest() {
	smallest := ""
	for name, size := range r.objects {
		if smallest == "" || size < r.objects[smallest] {
			smallest = name
		}
	}
	r.rest = max(r.rest, r.objects[smallest])
	delete(r.objects, smallest)
}
