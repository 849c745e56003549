// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
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
	c.memory.LimitHistory(c.MaxBytes, SizeOf)
	c.keyOf = keyOf
	c.encode = encoder(config)
	if c.Visible != nil || c.uncached {
		// The cacher cannot filter the events of a watch by the object before a change.
		ctx, cancel := context.WithCancel(context.Background())
		go c.sendBookmarks(ctx)
		return &served{c.memory, c}, storagefactory.DestroyFunc(cancel), nil
	}
	// The cacher sends initial events only if the library has found an etcd that reports the progress
	// of watches, and none that does not. The check lasts beyond this storage.
	feature.DefaultFeatureSupportChecker.CheckClient(context.Background(), current{}, storage.RequestWatchProgress)
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
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, c.memory)
	return &served{delegator, c}, func() {
		delegator.Stop()
		cached.Stop()
	}, nil
}

// current is a client of an etcd with the features that the storage has.
type current struct{}

func (current) Endpoints() []string { return []string{"memory"} }

func (current) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: "3.7.0"}, nil
}

// encoder returns a function that encodes an object as for etcd. The transformer, which observes the
// sizes of stored objects, receives it. An object that cannot be encoded is an error.
func encoder(config *storagebackend.ConfigForResource) func(context.Context, string, runtime.Object, bool) error {
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	return func(ctx context.Context, key string, obj runtime.Object, write bool) error {
		data, err := runtime.Encode(config.Codec, obj)
		if err != nil {
			return fmt.Errorf("encode %s: %w", key, err)
		}
		stored := value.DefaultContext(path.Join("/", config.Prefix, key))
		if write {
			_, err = transformer.TransformToStorage(ctx, data, stored)
		} else {
			_, _, err = transformer.TransformFromStorage(ctx, data, stored)
		}
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

// clockSkew is the difference that the clocks of two replicas may have.
const clockSkew = 2 * time.Second

// admit returns an error if the copy is not served, or if a resourceVersion is not from this server.
func (s *served) admit(ctx context.Context, resourceVersion uint64) error {
	if resourceVersion != 0 && s.cache.memory.Foreign(resourceVersion) {
		// The client may have seen a state of this time at another replica.
		seen := memorystorage.Time(resourceVersion).Add(clockSkew)
		if now := time.Now(); seen.After(now) {
			seen = now
		}
		if err := s.cache.refresh(ctx, seen, true); err != nil {
			return err
		}
		return apierrors.NewResourceExpired(expired)
	}
	if err := s.cache.Check(); err != nil {
		return s.cache.unavailable(err)
	}
	if age, err := s.cache.problem(); err != nil {
		if s.cache.Visible != nil {
			err = errUnavailable
		}
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
// find, or count all objects.
var readers = []string{
	"system:kube-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller", "system:serviceaccount:kube-system:resourcequota-controller",
}

// isReader returns whether the user of a request is one of the readers.
func isReader(ctx context.Context) bool {
	u, ok := genericapirequest.UserFrom(ctx)
	return ok && slices.Contains(readers, u.GetName())
}

// writes returns whether a request is a write.
func writes(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && slices.Contains([]string{"update", "patch", "delete"}, info.Verb)
}

// filter returns a context in which the storage finds the objects that the user may see. Without a
// user, the server itself reads.
func (s *served) filter(ctx context.Context) context.Context {
	u, ok := genericapirequest.UserFrom(ctx)
	if s.cache.Visible == nil || !ok || slices.Contains(readers, u.GetName()) ||
		slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return ctx
	}
	return memorystorage.WithFilter(ctx, func(obj runtime.Object) bool { return s.cache.visible(u, obj) })
}

// visible calls Visible. If that panics, the object is not visible.
func (c *Cache) visible(u user.Info, obj runtime.Object) (visible bool) {
	var err error
	defer func() { visible = visible && err == nil }()
	defer contain(c.Resource, &err)
	return c.Visible(u, obj)
}

// Get implements storage.Interface. Another replica may have served an object that this copy does not
// have. Therefore it reads the source again before the garbage collector decides that an owner does
// not exist or has another UID, and before a write fails because its object does not exist.
func (s *served) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.admit(ctx, s.parse(opts.ResourceVersion)); err != nil {
		return err
	}
	called := time.Now()
	if isReader(ctx) {
		if err := s.cache.refresh(ctx, called, false); err != nil {
			return err
		}
	}
	err := s.Interface.Get(s.filter(ctx), key, opts, out)
	if !storage.IsNotFound(err) || !writes(ctx) {
		return err
	}
	if err := s.cache.refresh(ctx, called, false); err != nil {
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
	if err := s.refreshForReader(ctx, version); err != nil {
		return err
	}
	return s.Interface.GetList(s.filter(ctx), key, opts, list)
}

// refreshForReader reads the source again before the garbage collector and other readers list all
// objects, for a list or watch that continues none.
func (s *served) refreshForReader(ctx context.Context, version uint64) error {
	if version != 0 || !isReader(ctx) {
		return nil
	}
	return s.cache.refresh(ctx, time.Now(), false)
}

// Watch implements storage.Interface. The watch ends when the copy is too old.
func (s *served) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	version := s.parse(opts.ResourceVersion)
	if err := s.admit(ctx, version); err != nil {
		return nil, err
	}
	if err := s.refreshForReader(ctx, version); err != nil {
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
