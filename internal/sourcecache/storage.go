// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/tools/cache"

	"example.com/extension-apiserver/internal/memorystorage"
)

const (
	// history is how long the cacher keeps changes, at least.
	history = cacher.DefaultEventFreshDuration
	// bookmarks is the time between two bookmarks of a watch that no cacher serves, as in the cacher.
	bookmarks = time.Minute
)

// expired is the message of the 410 for a resourceVersion that this server did not make.
const expired = "the resourceVersion or continue token is not from this server: list again"

// Decorate implements generic.StorageDecorator. It may be called once.
func (c *Cache) Decorate(config *storagebackend.ConfigForResource, prefix string,
	keyOf func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface,
	storagefactory.DestroyFunc, error) {
	c.memory = memorystorage.New(prefix, newFunc)
	c.keyOf = keyOf
	c.encode = encoder(config)
	if c.Visible != nil {
		// The cacher cannot filter the events of a watch by the object before a change.
		ctx, cancel := context.WithCancel(context.Background())
		go c.sendBookmarks(ctx)
		return &served{c.memory, c}, storagefactory.DestroyFunc(cancel), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	// The cacher asks the library whether etcd can report the progress of a watch.
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, capable{}, storage.RequestWatchProgress)
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             c.memory.ForCacher(),
		Versioner:           c.memory.Versioner(),
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: history,
		ResourcePrefix:      prefix,
		KeyFunc:             keyOf,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, c.memory)
	return &served{delegator, c}, func() {
		cancel()
		delegator.Stop()
		cached.Stop()
	}, nil
}

// capable says to the library that the storage has the features of a current etcd.
type capable struct{}

func (capable) Endpoints() []string { return []string{"memory"} }

func (capable) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: "3.7.0"}, nil
}

// encoder returns a function that encodes an object as for etcd. So the transformer, which observes
// the sizes of stored objects, sees it, and an object that cannot be encoded is an error.
func encoder(config *storagebackend.ConfigForResource) func(context.Context, string, runtime.Object) error {
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	return func(ctx context.Context, key string, obj runtime.Object) error {
		data, err := runtime.Encode(config.Codec, obj)
		if err != nil {
			return fmt.Errorf("encode %s: %w", key, err)
		}
		_, _, err = transformer.TransformFromStorage(ctx, data, value.DefaultContext(path.Join("/", config.Prefix, key)))
		return err
	}
}

func (c *Cache) sendBookmarks(ctx context.Context) {
	ticker := time.NewTicker(bookmarks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = c.memory.RequestWatchProgress(ctx) // it always succeeds
		}
	}
}

// served is the storage of the kind.
type served struct {
	storage.Interface
	cache *Cache
}

// admit returns an error if the copy is not served, or if a resourceVersion is not from this
// server.
func (s *served) admit(ctx context.Context, resourceVersion uint64) error {
	if resourceVersion != 0 && s.cache.memory.Foreign(resourceVersion) {
		if err := s.cache.refresh(ctx); err != nil {
			return err
		}
		return apierrors.NewResourceExpired(expired)
	}
	if err := s.cache.Check(); err != nil {
		return unavailable(err)
	}
	if age, err := s.cache.problem(); err != nil {
		warning.AddWarning(ctx, "", fmt.Sprintf("the objects of %s are %s old: %v", s.cache.Resource,
			age.Round(time.Second), err))
	}
	return nil
}

// parse returns a resourceVersion as a number. The storage reports the invalid ones.
func (s *served) parse(resourceVersion string) uint64 {
	parsed, err := s.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		return 0
	}
	return parsed
}

// readers are users that see all objects: they delete objects whose owner or namespace they do not
// find.
var readers = []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller"}

// filter returns a context in which the storage finds the objects that the user may see. Without a
// user, the server itself reads.
func (s *served) filter(ctx context.Context) context.Context {
	u, ok := genericapirequest.UserFrom(ctx)
	if s.cache.Visible == nil || !ok || slices.Contains(readers, u.GetName()) ||
		slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return ctx
	}
	return memorystorage.WithFilter(ctx, func(obj runtime.Object) bool { return s.cache.Visible(u, obj) })
}

// Get implements storage.Interface.
func (s *served) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.admit(ctx, s.parse(opts.ResourceVersion)); err != nil {
		return err
	}
	return s.Interface.Get(s.filter(ctx), key, opts, out)
}

// GetList implements storage.Interface.
func (s *served) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	version := s.parse(opts.ResourceVersion)
	if opts.Predicate.Continue != "" {
		prefix := path.Join(key) + "/"
		if _, continued, err := storage.DecodeContinue(opts.Predicate.Continue, prefix); err == nil && continued > 0 {
			version = uint64(continued)
		}
	}
	if err := s.admit(ctx, version); err != nil {
		return err
	}
	return s.Interface.GetList(s.filter(ctx), key, opts, list)
}

// Watch implements storage.Interface. The watch ends when the copy is too old.
func (s *served) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if err := s.admit(ctx, s.parse(opts.ResourceVersion)); err != nil {
		return nil, err
	}
	s.cache.mu.Lock()
	current := s.cache.current
	s.cache.mu.Unlock()
	ctx, cancel := context.WithCancel(s.filter(ctx))
	stop := context.AfterFunc(current, cancel)
	context.AfterFunc(ctx, func() { stop() })
	opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
	}
	return w, err
}

// Stats implements storage.Interface.
func (s *served) Stats(ctx context.Context) (storage.Stats, error) {
	stats, err := s.Interface.Stats(ctx)
	stats.EstimatedAverageObjectSizeBytes = s.cache.averageSize()
	return stats, err
}

// Create implements storage.Interface.
func (s *served) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	if s.cache.Create == nil {
		return s.unsupported("create")
	}
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	if version, err := s.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	if s.cache.memory.Has(key) {
		return storage.NewKeyExistsError(key, 0)
	}
	created, err := s.cache.Config.Create(ctx, obj.DeepCopyObject())
	if err != nil {
		return writeError("create", s.cache.Resource.String(), err)
	}
	return s.store(ctx, key, created, out)
}

// GuaranteedUpdate implements storage.Interface.
func (s *served) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if s.cache.Update == nil {
		return s.unsupported("update")
	}
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	filtered := s.filter(ctx)
	current := out.DeepCopyObject()
	if err := s.cache.memory.Get(filtered, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, current); err != nil {
		return err
	}
	if err := preconditions.Check(key, current); err != nil {
		return err
	}
	version, err := s.Versioner().ObjectResourceVersion(current)
	if err != nil {
		return err
	}
	updated, _, err := update(current.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	if s.cache.memory.Equal(key, updated) {
		return s.cache.memory.Get(ctx, key, storage.GetOptions{}, out)
	}
	stored, err := s.cache.Config.Update(ctx, updated.DeepCopyObject(), current)
	if err != nil {
		s.cache.requestPoll()
		return writeError("update", s.cache.Resource.String(), err)
	}
	return s.store(ctx, key, stored, out)
}

// Delete implements storage.Interface.
func (s *served) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if s.cache.Delete == nil {
		return s.unsupported("delete")
	}
	if err := s.admit(ctx, 0); err != nil {
		return err
	}
	current := out.DeepCopyObject()
	if err := s.cache.memory.Get(s.filter(ctx), key, storage.GetOptions{}, current); err != nil {
		return err
	}
	if err := preconditions.Check(key, current); err != nil {
		return err
	}
	if err := validate(ctx, current); err != nil {
		return err
	}
	if err := s.cache.Config.Delete(ctx, current.DeepCopyObject()); err != nil && !apierrors.IsNotFound(err) {
		s.cache.requestPoll()
		return writeError("delete", s.cache.Resource.String(), err)
	}
	s.cache.mu.Lock()
	s.cache.written.Insert(key)
	s.cache.remove(key)
	s.cache.mu.Unlock()
	return memorystorage.Assign(out, current)
}

// store adds an object that the source returned to the copy, and copies it into out.
func (s *served) store(ctx context.Context, key string, stored, out runtime.Object) error {
	preparedKey, object, err := s.cache.prepare(stored)
	if err == nil && preparedKey != key {
		err = fmt.Errorf("the source returned the object %s", preparedKey)
	}
	if err == nil {
		err = s.cache.encode(ctx, key, object)
	}
	if err != nil {
		s.cache.requestPoll()
		return apierrors.NewInternalError(fmt.Errorf("the source has stored %s, and returned an invalid object: %w", key, err))
	}
	s.cache.mu.Lock()
	s.cache.written.Insert(key)
	err = s.cache.put(key, object)
	s.cache.mu.Unlock()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return s.cache.memory.Get(ctx, key, storage.GetOptions{}, out)
}

func (s *served) unsupported(verb string) error {
	return apierrors.NewMethodNotSupported(s.cache.Resource, verb)
}

// writeError returns the status that the source returned, or one for another error.
func writeError(verb, resource string, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return apierrors.NewTimeoutError(fmt.Sprintf("%s %s: the source did not confirm the write, which may have been "+
			"done: %v", verb, resource, err), 0)
	}
	return apierrors.NewInternalError(fmt.Errorf("%s %s at the source: %w", verb, resource, err))
}
