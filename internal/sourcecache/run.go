// SPDX-License-Identifier: Apache-2.0

package sourcecache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// minGap is the minimum time between the end of a poll and the next one that a request causes.
	minGap = time.Second
	// minPause is the minimum time between the end of a poll and any next one.
	minPause = 100 * time.Millisecond
)

// Run keeps the copy current until the context is done.
func (c *Cache) Run(ctx context.Context) {
	retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 64, Cap: c.Interval}
	failing := retry
	for ctx.Err() == nil {
		began := time.Now()
		err := c.once(ctx, began)
		pause := time.Until(began.Add(c.Interval))
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Unable to read the objects of a source", "resource", c.Resource)
			pause = min(failing.Step(), c.Interval)
		} else {
			failing = retry
		}
		c.pause(ctx, max(pause, minPause))
	}
}

// pause waits for a time, or only minGap if that is shorter and a request needs a poll.
func (c *Cache) pause(ctx context.Context, pause time.Duration) {
	timer, gap := time.NewTimer(pause), time.NewTimer(minGap)
	defer timer.Stop()
	defer gap.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
		return
	case <-gap.C:
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.poll:
	}
}

// once reads the source once. A panic of the source is an error.
func (c *Cache) once(ctx context.Context, began time.Time) (err error) {
	c.mu.Lock()
	c.state.began = began
	c.mu.Unlock()
	defer func() { c.finish(began, err) }()
	defer contain(c.Resource, &err)
	if c.Watch == nil {
		defer c.read()()
		ctx, cancel := context.WithTimeout(ctx, c.MaxAge)
		defer cancel()
		return c.replace(ctx, began, c.List(ctx))
	}
	return c.watch(ctx, began)
}

// errSilent is the cause when the context of a watch ends because the source reports nothing: its
// connection may be lost.
var errSilent = errors.New("the watch of the source reports nothing")

func (c *Cache) watch(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.MaxAge/2, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopWatching()
		cancel(errSilent)
	})
	defer silence.Stop()
	c.mu.Lock()
	c.silence, c.abort = silence, cancel
	c.mu.Unlock()
	err := c.Watch(ctx, c)
	if cause := context.Cause(ctx); cause != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if errors.Is(cause, errSilent) && c.state.heard.After(began) {
			return nil // perhaps nothing has changed
		}
		return cause
	}
	if err == nil {
		err = errors.New("the watch of the source ended")
	}
	return err
}

// hear records that Watch called a method. The caller holds the lock.
func (c *Cache) hear() {
	c.state.heard = time.Now()
	if c.silence != nil {
		c.silence.Reset(c.MaxAge / 2)
	}
}

// stopWatching lets the copy become older. The caller holds the lock.
func (c *Cache) stopWatching() {
	if c.state.watching {
		c.state.watching = false
		c.completed(c.state.heard)
	}
}

// Confirm records that the copy is current, although no object has changed.
func (c *Cache) Confirm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hear()
}

// contain makes a panic of a source an error. Clients see the error, and not the stack.
func contain(of schema.GroupResource, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the source panicked: %v", r)
		klog.ErrorS(*err, "Panic of a source", "resource", of, "stack", string(debug.Stack()))
	}
}

// finish records the end of a poll or watch.
func (c *Cache) finish(began time.Time, err error) {
	c.metrics.polled(began, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.began = time.Time{}
	c.stopWatching()
	if c.state.problem = err; err != nil {
		c.state.failed = began
	}
	c.signal()
}

// completed records a complete list that began at a time. The caller holds the lock.
func (c *Cache) completed(began time.Time) {
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.current.Err() != nil {
		klog.InfoS("Serving the objects of a source", "resource", c.Resource, "objects", len(c.sizes))
		c.current, c.expire = context.WithCancel(context.Background())
	}
	c.state.complete, c.state.problem = began, nil
	c.metrics.completed(began)
	if !c.state.watching {
		var expiry *time.Timer
		expiry = time.AfterFunc(time.Until(began.Add(c.MaxAge)), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.expiry == expiry { // no later list is complete
				c.expire()
				c.metrics.expired()
				klog.InfoS("No longer serving the objects of a source: the copy is too old", "resource", c.Resource,
					"limit", c.MaxAge)
			}
		})
		c.expiry = expiry
	} else {
		c.expiry = nil
	}
	c.memory.Advance()
	c.signal()
}

// signal wakes the goroutines that wait for a change of the state. The caller holds the lock.
func (c *Cache) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}
