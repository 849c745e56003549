// SPDX-License-Identifier: Apache-2.0

// Package objectsizes tracks how long stored objects are as JSON. It observes the data that passes
// between etcd and the storage of a server.
package objectsizes

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"example.com/extension-apiserver/internal/restoptions"
)

const (
	// small is the size in bytes up to which Object does not distinguish objects, and up to which
	// writes are not limited.
	small = 64 << 10
	// named is the size in bytes up to which Large omits objects, unless their JSON exceeds the
	// stored size by more than a quarter and plainGrowth bytes.
	named       = 16 << 10
	plainGrowth = 1 << 10
	// maxTracked is how many larger objects of a resource are tracked.
	maxTracked = 10_000
	// maxStored is the maximum size in bytes of a request that etcd accepts by default.
	maxStored = 1.5 * 1024 * 1024
	// checkPeriod is the minimum time between two checks whether they still exist.
	checkPeriod = 10 * time.Second
)

// Sizes tracks the largest sizes that objects have had since the server started. A size is the
// length of the JSON in bytes, or an upper bound. Sizes do not shrink, because a watch reads the
// value before a change after the value that replaces it. All methods are safe for concurrent use.
type Sizes struct {
	mutex                 sync.Mutex
	resources             map[schema.GroupResource]*resource
	lists                 map[schema.GroupResource]*Lists
	allWrites, userWrites int64 // bytes, see LimitWrites
}

// resource holds the largest objects by NAMESPACE/NAME, or NAME. All others have at most the size
// rest.
type resource struct {
	prefix        string           // of keys in etcd
	versions      sets.Set[string] // of objects in memory
	objects       map[string]object
	rest, largest int64
	// floor is the size up to which objects are not tracked, because there are too many. growth is
	// the maximum number of bytes by which the JSON of an untracked object exceeds its stored
	// size.
	floor, growth int64
	exists        func(ctx context.Context, name string) bool // nil until the storage exists
	checked       time.Time                                   // when Forget last looked for deleted objects
	writes        *writes                                     // nil until a large object is written
}

type object struct{ json, stored int64 }

// New returns Sizes without resources.
func New() *Sizes {
	return &Sizes{resources: map[schema.GroupResource]*resource{}, lists: map[schema.GroupResource]*Lists{}}
}

// Known reports whether objects of the resource are stored in etcd.
func (s *Sizes) Known(of schema.GroupResource) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.resources[of] != nil
}

// Largest returns the size of the largest object of a resource in a namespace, or in all
// namespaces if namespace is empty. It returns 0 if the resource has no objects, or if they are
// not stored in etcd. The result for one namespace includes objects that Object does not
// distinguish.
func (s *Sizes) Largest(of schema.GroupResource, namespace string) int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil {
		return 0
	}
	if namespace == "" {
		return r.largest
	}
	largest := r.rest
	for name, object := range r.objects {
		if strings.HasPrefix(name, namespace+"/") {
			largest = max(largest, object.json)
		}
	}
	return min(largest, r.largest)
}

// Object returns the size of an object, or an upper bound: up to 64 KiB for an object that is
// smaller, and up to the size of the 10,000th largest object of the resource.
func (s *Sizes) Object(of schema.GroupResource, namespace, name string) int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil {
		return 0
	}
	return min(max(r.rest, r.objects[path.Join(namespace, name)].json), r.largest)
}

// List returns upper bounds of the total size of the objects in a list, and of the largest of them.
func (s *Sizes) List(of schema.GroupResource, list runtime.Object) (total, largest int64) {
	_ = meta.EachListItem(list, func(obj runtime.Object) error { // never an error
		size := s.listed(of, obj)
		total, largest = total+size, max(largest, size)
		return nil
	})
	return total, largest
}

// listed returns an upper bound of the size of an object in a list.
func (s *Sizes) listed(of schema.GroupResource, obj runtime.Object) int64 {
	accessor, err := meta.Accessor(obj)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if err != nil || r == nil {
		return 0
	}
	if known, ok := r.objects[path.Join(accessor.GetNamespace(), accessor.GetName())]; ok {
		return known.json
	}
	most := int64(named)
	if r.floor > 0 {
		most = r.rest
	}
	if sized, ok := obj.(interface{ Size() int }); ok {
		stored := int64(sized.Size())
		return min(stored+stored/4+plainGrowth, most)
	}
	return min(most, r.largest)
}

// Large returns the total size of the up to 10,000 largest objects of a resource in a namespace,
// or in all namespaces if namespace is empty, and their total stored size in bytes. They include
// objects of more than 16 KiB, and objects whose JSON is much longer than the stored data. growth
// is the maximum number of bytes by which the JSON of each other object exceeds its stored size.
func (s *Sizes) Large(of schema.GroupResource, namespace string) (json, stored, growth int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil {
		return 0, 0, 0
	}
	for name, object := range r.objects {
		if namespace == "" || strings.HasPrefix(name, namespace+"/") {
			json += object.json
			stored += object.stored
		}
	}
	return json, stored, r.growth
}

// Most returns the total size of the largest of the objects that Large counts, up to limit
// objects.
func (s *Sizes) Most(of schema.GroupResource, namespace string, limit int64) (json int64) {
	all := s.lengths(of, namespace)
	slices.Sort(all)
	for _, size := range all[max(0, int64(len(all))-limit):] {
		json += size
	}
	return json
}

// lengths returns the sizes of the objects that Large counts.
func (s *Sizes) lengths(of schema.GroupResource, namespace string) []int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	if r == nil {
		return nil
	}
	all := make([]int64, 0, len(r.objects))
	for name, object := range r.objects {
		if namespace == "" || strings.HasPrefix(name, namespace+"/") {
			all = append(all, object.json)
		}
	}
	return all
}

// Forget removes deleted objects from the results of Large and Most. It checks every 10 s at most,
// because it reads up to 10,000 objects from the watch cache.
func (s *Sizes) Forget(ctx context.Context, of schema.GroupResource) {
	s.mutex.Lock()
	r := s.resources[of]
	var names []string
	if r != nil && r.exists != nil && time.Since(r.checked) >= checkPeriod {
		r.checked = time.Now()
		for name := range r.objects {
			names = append(names, name)
		}
	}
	s.mutex.Unlock()
	for _, name := range names {
		if !r.exists(ctx, name) {
			s.mutex.Lock()
			delete(r.objects, name)
			s.mutex.Unlock()
		}
	}
}

// Observe returns options for storages whose objects Sizes tracks. typer has the versions of objects;
// with nil, no version is known.
func (s *Sizes) Observe(getter generic.RESTOptionsGetter, typer runtime.ObjectTyper) generic.RESTOptionsGetter {
	return observed{getter, s, typer}
}

// Converted reports whether objects of a resource are converted for a response in a version, because
// the server has them in another one.
func (s *Sizes) Converted(of schema.GroupResource, version string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.resources[of]
	return r != nil && r.versions.Len() > 0 && !r.versions.Has(version)
}

type observed struct {
	generic.RESTOptionsGetter
	sizes *Sizes
	typer runtime.ObjectTyper
}

// versionsOf returns the versions whose Go type an object in memory has.
func (o observed) versionsOf(example runtime.Object) sets.Set[string] {
	versions := sets.New[string]()
	if sourced, ok := example.(restoptions.Sourced); ok {
		example = sourced.Object
	}
	if o.typer == nil || example == nil {
		return versions
	}
	kinds, _, _ := o.typer.ObjectKinds(example) // none if the type is not registered
	for _, kind := range kinds {
		versions.Insert(kind.Version)
	}
	return versions.Delete(runtime.APIVersionInternal)
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
	r := o.sizes.resource(of, prefix, o.versionsOf(example))
	config.Transformer = transformer{config.Transformer, r, o.sizes}
	options.StorageConfig = &config
	return restoptions.Wrap(options, func(s storage.Interface, prefix string,
		newFunc func() runtime.Object) storage.Interface {
		o.sizes.setExists(r, func(ctx context.Context, name string) bool {
			// From the watch cache, if there is one. The user of the request may not see all objects.
			ctx = genericapirequest.WithUser(ctx, nil)
			err := s.Get(ctx, path.Join("/", prefix, name), storage.GetOptions{ResourceVersion: "0"}, newFunc())
			return !storage.IsNotFound(err)
		})
		return s
	}), nil
}

// setExists sets the function that reports whether an object exists.
func (s *Sizes) setExists(r *resource, exists func(context.Context, string) bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r.exists = exists
}

// resource returns the entry of a resource, and adds it if it is new.
func (s *Sizes) resource(of schema.GroupResource, prefix string, versions sets.Set[string]) *resource {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.resources[of] == nil {
		s.resources[of] = &resource{prefix: prefix, versions: versions, objects: map[string]object{}, rest: small}
	}
	return s.resources[of]
}

// transformer implements value.Transformer, through which all values of a storage pass with their
// keys.
type transformer struct {
	value.Transformer
	resource *resource
	sizes    *Sizes
}

func (t transformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, key)
	if err == nil {
		t.sizes.mutex.Lock()
		t.sizes.record(t.resource, key, object{JSONLength(out), int64(len(out))})
		t.sizes.mutex.Unlock()
	}
	return out, stale, err
}

func (t transformer) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	size := object{JSONLength(data), int64(len(data))}
	t.sizes.mutex.Lock()
	if size.stored <= maxStored { // a longer one is recorded when it is read
		t.sizes.record(t.resource, key, size)
	}
	if size.json > small {
		t.sizes.countWrite(ctx, t.resource, size.stored)
	}
	t.sizes.mutex.Unlock()
	return t.Transformer.TransformToStorage(ctx, data, key)
}

// record records the size of an object. The caller must hold the lock.
func (s *Sizes) record(r *resource, key value.Context, size object) {
	r.largest = max(r.largest, size.json)
	if size.json <= named && size.json <= size.stored+size.stored/4+plainGrowth {
		return
	}
	name, ok := strings.CutPrefix(string(key.AuthenticatedData()), r.prefix)
	if !ok || size.json <= r.floor { // it could be any object
		r.forget(size)
		return
	}
	if size.json <= r.objects[name].json {
		return
	}
	r.objects[name] = size
	if len(r.objects) > maxTracked {
		r.dropSmallest()
	}
}

func (r *resource) dropSmallest() {
	smallest := ""
	for name, size := range r.objects {
		if smallest == "" || size.json < r.objects[smallest].json {
			smallest = name
		}
	}
	r.floor = r.objects[smallest].json
	r.forget(r.objects[smallest])
	delete(r.objects, smallest)
}

// forget records the size of an object that is not tracked.
func (r *resource) forget(size object) {
	r.rest = max(r.rest, size.json)
	r.growth = max(r.growth, size.json-size.stored)
}

// JSONLength returns the length that data in JSON, protobuf or CBOR has when it is encoded as
// JSON, or an upper bound.
func JSONLength(data []byte) (length int64) {
	if bytes.HasPrefix(data, []byte("{")) {
		return EscapedLength(data)
	}
	for i := 0; i < len(data); {
		if cost := jsonLengths[data[i]]; cost > 0 {
			length += cost
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1, r == '\u2028', r == '\u2029':
			length += 6
		default:
			length += int64(size)
		}
		i += size
	}
	return length
}

// EscapedLength returns the length of JSON with <, > and & as encoding/json escapes them: \u003c.
func EscapedLength(json []byte) int64 {
	return int64(len(json) + 5*(bytes.Count(json, []byte("<"))+bytes.Count(json, []byte(">"))+bytes.Count(json,
		[]byte("&"))))
}

// jsonLengths holds the lengths that ASCII characters of protobuf have as JSON. Control characters
// in strings are escaped. Most of them are not in strings, but begin fields, which have names and
// punctuation in JSON.
var jsonLengths = func() (lengths [256]int64) {
	for c := range utf8.RuneSelf {
		switch {
		case c < ' ':
			lengths[c] = 10
		case c == '<' || c == '>' || c == '&':
			lengths[c] = 6
		case c == '"' || c == '\\':
			lengths[c] = 2
		default:
			lengths[c] = 1
		}
	}
	return lengths
}()
