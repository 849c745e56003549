// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/restoptions"
	"example.com/extension-apiserver/internal/sourcecache"
)

// Defaults of Cached.
const (
	defaultInterval = 30 * time.Second
	defaultMaxAge   = 5 * time.Minute
	defaultMaxBytes = 32 << 20
)

// Source serves objects that another system has, instead of objects in etcd. Use Cached or Live.
type Source[T Object] interface {
	// check returns an error for each contradiction in the source.
	check(d *description[T]) []error
	newStorage(d *description[T], optsGetter generic.RESTOptionsGetter,
		a authorizer.Authorizer) (*genericregistry.Store, rest.Storage, error)
}

// Cached is a Source that keeps a copy of all objects in memory. The copy is served like the
// objects of a kind in etcd: get, list and watch with selectors, paging, tables, bookmarks and
// WatchList. Set either List or Watch.
//
// Objects are in the type of the hub, and need a name and, unless the kind is cluster-scoped, a
// namespace. Their defaults are set. An object without a UID gets one that is derived from its
// group, kind, namespace and name, so all replicas of the server serve the same UID. The
// resourceVersion is set by the server.
//
// Until the first complete list, and when the copy is older than MaxAge, requests fail with 503
// and watches end. The last error is in the message, in the server's log, in the readyz check
// sources, and in the metric extension_apiserver_source_errors_total. While the last poll has
// failed but the copy is not too old, responses have a warning.
//
// Each replica of a server has its own copy. A watch or list with a resourceVersion of another
// replica fails with 410, after this replica has read the source again. Clients then list again.
//
// The functions receive a context from which apiserver.RuntimeFrom returns the Runtime of the
// server. If they panic, the poll or the request fails.
type Cached[T Object] struct {
	// List yields all objects of the source, in any order. An error ends the poll, and the copy
	// remains as it is. So does an invalid object or one that is yielded twice: an incomplete list
	// would look as if the other objects had been deleted.
	List func(ctx context.Context) iter.Seq2[T, error]
	// Watch keeps the copy current until the context is done or the source cannot be watched. It
	// calls Replace of the Cache first. While it runs and calls methods of the Cache, the copy is
	// current. If it calls none for half of MaxAge, or Put returns an error, its context ends. When
	// it returns, it is called again after a delay.
	Watch func(ctx context.Context, c Cache[T]) error
	// Interval is the time between the starts of two polls. After an error, the first retries are
	// sooner. A request that needs a newer copy causes a poll too, at most one each second.
	// Default: 30 s.
	Interval time.Duration
	// MaxAge is the age from which the copy is not served, and the timeout of a poll. It must be
	// at least two intervals, and longer than an interval and two polls take. Default: 5 minutes,
	// or 3 intervals if that is longer.
	MaxAge time.Duration
	// MaxBytes is the maximum size of all objects, as protobuf or JSON, where each object counts
	// for 1 KiB more. A poll that yields more fails. It is also the maximum size of the changes
	// within 75 seconds, for which watches keep them: a poll that yields more is applied later, or
	// fails after MaxAge. Default: 32 MiB.
	MaxBytes int64
	// Visible returns whether a user may see an object. It must depend on nothing else, and must
	// not change the object. Requests for others respond as if they did not exist. The garbage
	// collector and the namespace controller see all objects. Default: all users may see all
	// objects that they are authorized to read.
	Visible func(u user.Info, obj T) bool
	// Create, Update and Delete change the source, after admission and validation. A dry run does
	// not call them, and two of them are not called at the same time for an object. Errors that
	// are not an API status become 500. Update is for the verbs update and patch, and Delete for
	// delete and deletecollection. Default: discovery does not list the verbs of the function, and
	// requests with them get 405. Without Create, server-side apply of a new object gets 405.
	//
	// Create and Update return the object that the source now has. Metadata that the source does
	// not store is lost. Create returns an error such as that of apierrors.NewAlreadyExists if the
	// source has an object with the name, since another replica may have created it. Update changes
	// the object only if its version in the source is that of old, and otherwise returns a conflict,
	// such as that of apierrors.NewConflict; then the server reads the source again, and repeats the
	// update once. Delete returns when the object no longer exists. It returns a conflict if the
	// source has another object than obj, such as one with a finalizer that another replica has
	// added; then the server repeats the deletion too.
	//
	// The server also reads the source again before an update, patch or deletion fails with 404, and
	// before one succeeds because it changes nothing. Clients that send a resourceVersion, as
	// controllers do in updates, get 409 if it is from another replica.
	Create func(ctx context.Context, obj T) (T, error)
	Update func(ctx context.Context, obj, old T) (T, error)
	Delete func(ctx context.Context, obj T) error
	// Version returns the version of an object in the source, such as a revision or an ETag, which
	// is the same in all replicas and differs after each change. Update needs it: without the
	// version of old, the updates of two replicas would undo one another. An update that changes an
	// object but not its version fails with 500.
	Version func(obj T) string
	// KeepsMetadata is true if Create and Update store all metadata, including finalizers and
	// deletionTimestamp. Otherwise, the server rejects finalizers, and deletes dependents in the
	// background only. It needs Update, because finalizers are removed by updates.
	KeepsMetadata bool
}

// Cache is the copy of the objects of a Cached source, for Watch. All methods can be called
// concurrently.
type Cache[T Object] struct{ cache *sourcecache.Cache }

// Replace makes the copy equal to a complete list of the source. It returns an error and changes
// nothing if the list contains an error or an invalid object.
func (c Cache[T]) Replace(ctx context.Context, all iter.Seq2[T, error]) error {
	return c.cache.Replace(ctx, objects(all))
}

// Put adds an object, or changes it if the copy has one with its name. It returns an error if the
// object is invalid.
func (c Cache[T]) Put(ctx context.Context, obj T) error { return c.cache.Put(ctx, obj) }

// Remove removes the object with the name and namespace of obj, if the copy has it.
func (c Cache[T]) Remove(obj T) error { return c.cache.Remove(obj) }

// Confirm records that the copy is current. Call it when the source, such as with a heartbeat, shows
// that the connection is alive and that nothing has changed.
func (c Cache[T]) Confirm() { c.cache.Confirm() }

func objects[T Object](all iter.Seq2[T, error]) iter.Seq2[runtime.Object, error] {
	return func(yield func(runtime.Object, error) bool) {
		for obj, err := range all {
			if !yield(obj, err) {
				return
			}
		}
	}
}

// withDefaults returns the source with default values for empty fields.
func (s Cached[T]) withDefaults() Cached[T] {
	if s.Interval == 0 {
		s.Interval = defaultInterval
	}
	if s.MaxAge == 0 {
		s.MaxAge = max(defaultMaxAge, 3*s.Interval)
	}
	if s.MaxBytes == 0 {
		s.MaxBytes = defaultMaxBytes
	}
	return s
}

func (s Cached[T]) check(d *description[T]) []error {
	var problems []error
	if (s.List == nil) == (s.Watch == nil) {
		problems = append(problems, errors.New("set either List or Watch"))
	}
	s = s.withDefaults()
	if s.Interval < 0 || s.MaxAge < 2*s.Interval {
		problems = append(problems, fmt.Errorf("field MaxAge is %s with the Interval %s: must be at least twice as long",
			s.MaxAge, s.Interval))
	}
	if s.MaxBytes < 0 {
		problems = append(problems, fmt.Errorf("field MaxBytes is %d: must be positive", s.MaxBytes))
	}
	if s.Update != nil && s.Version == nil {
		problems = append(problems, errors.New("the field Update needs Version"))
	}
	if s.KeepsMetadata && s.Update == nil {
		problems = append(problems, errors.New("the field KeepsMetadata needs Update"))
	}
	for name, subresource := range d.Subresources {
		if _, ok := subresource.(interface{ updates() }); ok && s.Update == nil {
			problems = append(problems, fmt.Errorf("the subresource %s needs Update", name))
		}
	}
	return problems
}

func (s Cached[T]) newStorage(d *description[T], optsGetter generic.RESTOptionsGetter,
	a authorizer.Authorizer) (*genericregistry.Store, rest.Storage, error) {
	s = s.withDefaults()
	config := sourcecache.Config{Resource: d.resource, Interval: s.Interval, MaxAge: s.MaxAge, MaxBytes: s.MaxBytes,
		Prepare: d.prepareSourced, Validate: d.validateSourced, KeepsMetadata: s.KeepsMetadata}
	//nolint:forcetypeassert // all objects of the kind are T
	{
		if s.List != nil {
			config.List = func(ctx context.Context) iter.Seq2[runtime.Object, error] { return objects(s.List(ctx)) }
		} else {
			config.Watch = func(ctx context.Context, c *sourcecache.Cache) error { return s.Watch(ctx, Cache[T]{c}) }
		}
		if s.Visible != nil {
			config.Visible = func(u user.Info, obj runtime.Object) bool { return s.Visible(u, obj.(T)) }
		}
		if s.Create != nil {
			config.Create = func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
				return s.Create(ctx, obj.(T))
			}
		}
		if s.Update != nil {
			config.Update = func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
				return s.Update(ctx, obj.(T), old.(T))
			}
			config.Version = func(obj runtime.Object) string { return s.Version(obj.(T)) }
		}
		if s.Delete != nil {
			config.Delete = func(ctx context.Context, obj runtime.Object) error { return s.Delete(ctx, obj.(T)) }
		}
	}
	cache := sourcecache.New(config)
	d.losesFinalizers = !s.KeepsMetadata
	store, err := d.newStore(sourced{optsGetter, cache}, a)
	if err != nil {
		return nil, nil, err
	}
	if s.Create == nil {
		// Server-side apply creates objects, and a dry run of it does not reach the cache.
		store.BeginCreate = func(context.Context, runtime.Object, *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			return nil, apierrors.NewMethodNotSupported(d.resource, "create")
		}
	}
	r := reader{store, store, store, store, store, store, names{d.ShortNames, d.Categories}, cache}
	return store, cachedREST(r, store, s.Create != nil, s.Update != nil, s.Delete != nil), nil
}

// sourced is the options of a storage that a cache serves.
type sourced struct {
	generic.RESTOptionsGetter
	cache *sourcecache.Cache
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s sourced) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	return s.RESTOptionsGetter.GetRESTOptions(of, restoptions.Sourced{Object: example, Decorator: s.cache.Decorate,
		KeepsMetadata: s.cache.KeepsMetadata})
}

// sourceSpace is the namespace of the UIDs that the kit derives.
var sourceSpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("extension-apiserver/source"))

// prepareSourced returns a copy of an object of a source with its defaults and a UID, or an error
// if it is not of the kind.
func (d *description[T]) prepareSourced(obj runtime.Object) (runtime.Object, error) {
	given, ok := obj.(T)
	if !ok || isNil(given) {
		return nil, fmt.Errorf("the source has an object that is nil or no %s", d.gvk.Kind)
	}
	if gvk := given.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != d.gvk {
		return nil, fmt.Errorf("the source has a %s %s/%s, expected %s", gvk, given.GetNamespace(), given.GetName(), d.gvk)
	}
	object := given.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has the same type
	object.GetObjectKind().SetGroupVersionKind(d.gvk)
	d.scheme.Default(object)
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	object.SetResourceVersion("")
	if object.GetUID() == "" {
		object.SetUID(types.UID(uuid.NewSHA1(sourceSpace, []byte(d.gvk.GroupKind().String()+"/"+object.GetNamespace()+"/"+
			object.GetName())).String()))
	}
	return object, nil
}

// validSourced is prepareSourced with an error if the object is invalid.
func (d *description[T]) validSourced(obj runtime.Object) (runtime.Object, error) {
	object, err := d.prepareSourced(obj)
	if err != nil {
		return nil, err
	}
	return object, d.validateSourced(object)
}

// validateSourced returns the error of a prepared object with invalid metadata.
func (d *description[T]) validateSourced(obj runtime.Object) error {
	object := obj.(T) //nolint:forcetypeassert // prepareSourced returned it
	name := d.ValidateName
	if name == nil {
		name = apivalidation.NameIsDNSSubdomain
	}
	errs := apivalidation.ValidateObjectMetaAccessor(object, !d.ClusterScoped, name, field.NewPath("metadata"))
	if len(errs) > 0 {
		return fmt.Errorf("the source has an invalid %s %s/%s: %w", d.gvk.Kind, object.GetNamespace(), object.GetName(),
			errs.ToAggregate())
	}
	for _, value := range d.SelectableFields {
		value(object) // if the function panics, the poll fails
	}
	return nil
}
