// SPDX-License-Identifier: Apache-2.0

// Package sourcecache keeps a copy of the objects of another system, the source, and serves the
// copy as the storage of a kind.
package sourcecache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/keymutex"

	"example.com/extension-apiserver/internal/memorystorage"
	"example.com/extension-apiserver/internal/objectsizes"
)

const (
	// refreshTimeout is how long a request waits for a poll. maxRefreshing is how many reads wait at a
	// time: each holds a seat of priority and fairness. Others get 503, and need not wait when they are
	// repeated after the poll.
	refreshTimeout = 10 * time.Second
	maxRefreshing  = 10
	// objectCost is added to the size of each object, for its parts that are not encoded.
	objectCost = 1 << 10
)

// Config describes a source. Either List or Watch is set.
type Config struct {
	Resource schema.GroupResource
	// List yields all objects of the source.
	List func(ctx context.Context) iter.Seq2[runtime.Object, error]
	// Watch fills the cache until the context is done, or returns an error. Its context is done too
	// when it has called no method of the cache for half of MaxAge.
	Watch func(ctx context.Context, c *Cache) error
	// Prepare returns the object to serve for one of the source, or an error if it is none of the
	// kind. It must not change the given object.
	Prepare func(runtime.Object) (runtime.Object, error)
	// Validate returns the error of a prepared object. It is not called for objects that the copy has.
	Validate func(runtime.Object) error
	// Interval is the time from the start of a poll to the start of the next one.
	Interval time.Duration
	// MaxAge is the age from which the copy is no longer served.
	MaxAge time.Duration
	// MaxBytes is the maximum size of all objects, and of the changes within the history.
	MaxBytes int64
	// Visible returns whether a user may see an object. Default: all may.
	Visible func(u user.Info, obj runtime.Object) bool
	// Create, Update and Delete change an object in the source. Create and Update return the object
	// that the source now has. Default: the method is not supported.
	Create func(ctx context.Context, obj runtime.Object) (runtime.Object, error)
	Update func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error)
	Delete func(ctx context.Context, obj runtime.Object) error
	// Version returns the version of an object in the source. Default: versions are not compared.
	Version func(obj runtime.Object) string
	// KeepsMetadata is true if the source stores finalizers and deletionTimestamp.
	KeepsMetadata bool
}

// Cache is the copy of the objects of a source. All methods can be called concurrently.
type Cache struct {
	Config
	memory  *memorystorage.Storage
	keyOf   func(runtime.Object) (string, error)
	encode  func(ctx context.Context, key string, obj runtime.Object, write bool) error
	metrics observers
	writes  keymutex.KeyMutex
	// uncached is set by tests with synctest, which cannot see that goroutines of the cacher wait.
	uncached bool
	// churn limits the bytes of changes, which the histories of watches keep for some time.
	churn *rate.Limiter

	poll chan struct{} // has an element if a request waits for a poll

	mu      sync.Mutex
	state   state
	changed chan struct{} // closed and replaced when the state changes
	// current is done when the copy is too old. Watches end then.
	current context.Context //nolint:containedctx // of watches
	expire  context.CancelFunc
	expiry  *time.Timer
	silence *time.Timer             // of Watch
	abort   context.CancelCauseFunc // ends Watch
	// written has the times of writes while lists are read, by key. A list that began before a write
	// may lack it. replacing is the number of lists that are read.
	written   map[string]time.Time
	replacing int
	sizes     map[string]int64 // bytes, by key
	size      int64            // of all objects, in bytes
	// refreshing is the number of requests that wait for a poll.
	refreshing int
}

// state describes how current the copy is.
type state struct {
	complete time.Time // when the last complete list began; zero if there was none
	began    time.Time // when the poll in progress began; zero if there is none
	failed   time.Time // when the last poll that failed began
	watching bool      // Watch is running and has called Replace
	heard    time.Time // when Watch last called a method
	problem  error     // of the last poll
}

// New returns an empty cache. Call Run to fill it.
func New(config Config) *Cache {
	c := &Cache{
		Config:  config,
		poll:    make(chan struct{}, 1),
		changed: make(chan struct{}),
		metrics: observe(config.Resource),
		writes:  keymutex.NewHashed(0),
		churn:   rate.NewLimiter(rate.Limit(float64(config.MaxBytes)/history.Seconds()), int(config.MaxBytes)),
		written: map[string]time.Time{},
		sizes:   map[string]int64{},
	}
	c.current, c.expire = context.WithCancel(context.Background())
	c.expire()
	return c
}

// Replace makes the copy equal to a complete list of the source. It returns an error and changes
// nothing if the list has an error, an invalid object, two objects with the same name, or too many
// bytes.
func (c *Cache) Replace(ctx context.Context, all iter.Seq2[runtime.Object, error]) error {
	defer c.read()()
	return c.replace(ctx, time.Now(), all)
}

// read records writes until the returned function is called.
func (c *Cache) read() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replacing++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.replacing--; c.replacing == 0 {
			clear(c.written)
		}
	}
}

// wrote records a write. The caller holds the lock.
func (c *Cache) wrote(key string) {
	if c.replacing > 0 {
		c.written[key] = time.Now()
	}
}

// replace is Replace with a list that began at a time.
func (c *Cache) replace(ctx context.Context, began time.Time, all iter.Seq2[runtime.Object, error]) error {
	sizes, changed, err := c.differences(ctx, all)
	if err != nil {
		return err
	}
	bytes := int64(0)
	for key := range changed {
		bytes += sizes[key]
	}
	if err := c.churn.WaitN(ctx, int(bytes)); err != nil {
		return fmt.Errorf("apply %d MiB of changes of the source: %d MiB can change within %s: %w", bytes>>20,
			c.MaxBytes>>20, history, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, at := range c.written {
		if at.Before(began) {
			continue
		}
		delete(changed, key)
		if size, ok := c.sizes[key]; ok {
			sizes[key] = size
		} else {
			delete(sizes, key)
		}
	}
	if err := c.memory.Replace(changed, func(key string) bool { return sizes[key] != 0 }); err != nil {
		return err
	}
	c.sizes, c.size = sizes, 0
	for _, size := range sizes {
		c.size += size
	}
	c.metrics.objects(len(sizes))
	if c.state.watching = c.Watch != nil; c.state.watching {
		c.hear()
	}
	c.completed(began)
	return nil
}

// differences returns the sizes of all objects of a list by key, and those objects that the copy does
// not have.
func (c *Cache) differences(ctx context.Context, all iter.Seq2[runtime.Object, error]) (map[string]int64,
	map[string]runtime.Object, error) {
	c.mu.Lock()
	sizes := make(map[string]int64, len(c.sizes))
	c.mu.Unlock()
	changed, total := map[string]runtime.Object{}, int64(0)
	for obj, err := range all {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, nil, err
		}
		key, object, err := c.prepare(obj)
		if err != nil {
			return nil, nil, err
		}
		if sizes[key] != 0 {
			return nil, nil, fmt.Errorf("list the source: two objects have the key %s", key)
		}
		same, size := c.memory.Equal(key, object), c.sizeOf(key)
		if !same || size == 0 {
			size = SizeOf(object)
		}
		sizes[key] = size
		if total += size; total > c.MaxBytes {
			return nil, nil, fmt.Errorf("list the source: more than %d MiB, which is the limit, in the first %d objects",
				c.MaxBytes>>20, len(sizes))
		}
		if same {
			continue
		}
		if err := c.accept(ctx, key, object, false); err != nil {
			return nil, nil, err
		}
		changed[key] = object
	}
	return sizes, changed, ctx.Err() // the sequence may have ended because of it
}

// Put adds or changes an object of the copy. After an error, the copy lacks a change, so the context
// of Watch ends.
func (c *Cache) Put(ctx context.Context, obj runtime.Object) error {
	err := c.putObject(ctx, obj)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopWatching()
		if c.abort != nil {
			c.abort(err)
		}
	}
	return err
}

func (c *Cache) putObject(ctx context.Context, obj runtime.Object) error {
	key, object, err := c.prepare(obj)
	if err != nil {
		return err
	}
	if err := c.accept(ctx, key, object, false); err != nil {
		return err
	}
	size := SizeOf(object)
	if err := c.churn.WaitN(ctx, int(min(size, c.MaxBytes))); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fits(key, size) {
		return fmt.Errorf("add %s: the objects of the source have more than %d MiB, which is the limit", key,
			c.MaxBytes>>20)
	}
	c.hear()
	return c.put(key, object, size)
}

// fits returns whether the copy has space for an object. The caller holds the lock.
func (c *Cache) fits(key string, size int64) bool { return c.size+size-c.sizes[key] <= c.MaxBytes }

// put stores an object. The caller holds the lock.
func (c *Cache) put(key string, object runtime.Object, size int64) error {
	if err := c.memory.Put(key, object); err != nil {
		return err
	}
	c.size += size - c.sizes[key]
	c.sizes[key] = size
	c.metrics.objects(len(c.sizes))
	return nil
}

// Remove removes an object from the copy.
func (c *Cache) Remove(obj runtime.Object) error {
	key, err := c.keyOf(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hear()
	c.remove(key)
	return nil
}

// remove removes an object, and returns its last state, or nil if the copy does not have it. The
// caller holds the lock.
func (c *Cache) remove(key string) runtime.Object {
	c.size -= c.sizes[key]
	delete(c.sizes, key)
	c.metrics.objects(len(c.sizes))
	return c.memory.Remove(key)
}

// sizeOf returns the size of an object of the copy, or 0.
func (c *Cache) sizeOf(key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sizes[key]
}

// averageSize returns the average size of the objects in bytes.
func (c *Cache) averageSize() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size / max(1, int64(len(c.sizes)))
}

func (c *Cache) prepare(obj runtime.Object) (string, runtime.Object, error) {
	object, err := c.Prepare(obj)
	if err != nil {
		return "", nil, err
	}
	key, err := c.keyOf(object)
	if err != nil {
		if invalid := c.Validate(object); invalid != nil {
			err = invalid
		}
		return "", nil, err
	}
	return key, object, nil
}

// accept returns the error of an object that is invalid or that cannot be encoded. write reports
// whether a client wrote it.
func (c *Cache) accept(ctx context.Context, key string, object runtime.Object, write bool) error {
	if err := c.Validate(object); err != nil {
		return err
	}
	return c.encode(ctx, key, object, write)
}

// SizeOf returns the size of an object in bytes, with what its parts cost that are not encoded. encode
// returns the error of an object that has no size.
func SizeOf(obj runtime.Object) int64 { return objectsizes.Of(obj) + objectCost }

// Check returns the reason why the copy is not served, or nil.
func (c *Cache) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.check()
}

func (c *Cache) check() error {
	if c.current.Err() == nil {
		return nil
	}
	cause := c.state.problem
	if cause == nil && !c.state.began.IsZero() {
		cause = notResponding(time.Since(c.state.began))
	} else if cause == nil {
		cause = errors.New("the source was not read yet")
	}
	if c.state.complete.IsZero() {
		return fmt.Errorf("read %s: %w", c.Resource, cause)
	}
	return fmt.Errorf("read %s: the copy is %s old, and the limit is %s: %w", c.Resource,
		time.Since(c.state.complete).Round(time.Second), c.MaxAge, cause)
}

// problem returns the error of the last poll if the copy is still served, or that the source does not
// respond to a poll.
func (c *Cache) problem() (age time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.watching {
		return 0, nil
	}
	err = c.state.problem
	if waited := time.Since(c.state.began); err == nil && !c.state.began.IsZero() && waited > c.Interval {
		err = notResponding(waited)
	}
	return time.Since(c.state.complete), err
}

func notResponding(waited time.Duration) error {
	return fmt.Errorf("the source has not responded for %s", waited.Round(time.Second))
}

// Wait waits until the copy is served, or the context is done.
func (c *Cache) Wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		changed, err := c.changed, c.check()
		c.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-changed:
		}
	}
}

// refresh waits for a complete list that began after a time, since another replica may have served
// a state of that time. A source that is watched is current. With limited, at most maxRefreshing
// requests wait.
func (c *Cache) refresh(ctx context.Context, after time.Time, limited bool) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	called, waits := time.Now(), false
	defer func() {
		if waits {
			c.mu.Lock()
			c.refreshing--
			c.mu.Unlock()
		}
	}()
	for {
		c.mu.Lock()
		changed, done := c.changed, c.state.watching || c.state.complete.After(after)
		problem, failed := c.state.problem, c.state.failed.After(called)
		if limited && !done && !failed && !waits {
			if waits = c.refreshing < maxRefreshing; waits {
				c.refreshing++
			} else {
				problem, failed = errors.New("too many requests wait for it"), true
			}
		}
		c.mu.Unlock()
		if done {
			return nil
		}
		c.requestPoll()
		if failed {
			return c.unavailable(fmt.Errorf("read %s again: %w", c.Resource, problem))
		}
		select {
		case <-ctx.Done():
			return c.unavailable(fmt.Errorf("read %s again: %w", c.Resource, ctx.Err()))
		case <-changed:
		}
	}
}

// includes returns whether the copy has all changes of the source before a time.
func (c *Cache) includes(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.watching || c.state.complete.After(at)
}

// requestPoll makes the next poll begin soon.
func (c *Cache) requestPoll() {
	select {
	case c.poll <- struct{}{}:
	default: // it is requested already
	}
}

// errUnavailable is the cause that users see if they see different objects.
var errUnavailable = errors.New("the source is not available")

// unavailable returns a 503 with a cause. It does not name a time to retry: client-go would retry
// for 10 s before it shows the cause. If users see different objects, the cause, which can name an
// object, is only in the log.
func (c *Cache) unavailable(cause error) error {
	if c.Visible != nil {
		cause = fmt.Errorf("read %s: %w", c.Resource, errUnavailable)
	}
	return apierrors.NewServiceUnavailable(cause.Error())
}
