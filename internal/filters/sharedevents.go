// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"context"
	"io"
	goruntime "runtime"
	"sync"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"example.com/extension-apiserver/internal/objectsizes"
)

const (
	// eventsAhead is how many events of a watch wait for its client here. The library buffers at
	// least as many.
	eventsAhead = 10
	// keepEncoded is how long an encoded event is kept for other watches. A watch that reads it
	// later encodes it again.
	keepEncoded = time.Second
)

// sharedEvents are the events that the watches of a storage share. The library encodes a created,
// changed or deleted object once for all watches. It keeps the object in each encoding for as long
// as any watch has the event in its queue: 18 encodings of 30 events, if its client does not read.
//
// The library copies and encodes an object separately for each watch whose selector the object has
// left, because a change made the selector no longer match (setCachingObjects in
// k8s.io/apiserver/pkg/storage/cacher). Here, both are encoded once and kept for one second. The
// zero value is ready for use.
type sharedEvents struct {
	mutex sync.Mutex
	known map[eventKey]weak.Pointer[sharedObject]
}

// eventKey identifies an event by the resource version of the change. deleted is true for an event
// with the object as it was before the change.
type eventKey struct {
	uid     types.UID
	version string
	deleted bool
}

// watch starts a watch that shares events with others. The watch ends if an object leaves its
// selector while its client has not read the previous events, because the watch would hold a copy
// of each object. Events since an old version wait for the client, because the library copies
// these one after the other.
func (e *sharedEvents) watch(ctx context.Context,
	start func(context.Context) (watch.Interface, error)) (watch.Interface, error) {
	s := &sharingWatch{ctx: ctx, result: make(chan watch.Event, eventsAhead), stopped: make(chan struct{})}
	w, err := start(utilflowcontrol.WithInitializationSignal(ctx, s))
	if err != nil {
		return nil, err
	}
	s.begin(w)
	go s.run(e)
	return s, nil
}

// of returns the shared object for the key. It stores the given object if it is the first one.
func (e *sharedEvents) of(key eventKey, object runtime.Object, accessor metav1.Object) *sharedObject {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if o := e.known[key].Value(); o != nil {
		return o
	}
	if e.known == nil {
		e.known = map[eventKey]weak.Pointer[sharedObject]{}
	}
	o := &sharedObject{Object: accessor, object: object}
	o.size = sync.OnceValue(func() int64 { return objectsizes.Of(o.copy()) })
	e.known[key] = weak.Make(o)
	goruntime.AddCleanup(o, e.forget, key)
	return o
}

// forget deletes an event that no watch has any more, unless it has been added again.
func (e *sharedEvents) forget(key eventKey) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.known[key].Value() == nil {
		delete(e.known, key)
	}
}

// sharingWatch implements watch.Interface, and utilflowcontrol.InitializationSignal for the
// library's watch.
type sharingWatch struct {
	watch.Interface
	ctx     context.Context // with the initialization signal of priority and fairness
	result  chan watch.Event
	stopped chan struct{}
	once    sync.Once

	mutex sync.Mutex
	// live is true when the library has sent the events since the version with which the watch
	// began. old is the number of these events that have not been read yet.
	live bool
	old  int
}

func (s *sharingWatch) begin(w watch.Interface) { s.goLive(func() { s.Interface = w }) }

// Signal implements utilflowcontrol.InitializationSignal.
func (s *sharingWatch) Signal() { s.goLive(func() { s.live = true }) }

// goLive makes a change. After the signal of a watch that has begun, it counts the old events that
// have not been read yet, and passes the signal on.
func (s *sharingWatch) goLive(change func()) {
	s.mutex.Lock()
	was := s.live && s.Interface != nil
	change()
	live := s.live && s.Interface != nil && !was
	if live {
		s.old = len(s.Interface.ResultChan())
		s.initial().expect(s.old)
	}
	s.mutex.Unlock()
	if live {
		utilflowcontrol.WatchInitialized(s.ctx)
	}
}

// initial returns the memory for the old events, or nil.
func (s *sharingWatch) initial() *initialShare {
	if share := shareOf(s.ctx); share != nil {
		return share.initial
	}
	return nil
}

// Wait does nothing. Priority and fairness waits for its own signal.
func (s *sharingWatch) Wait() {}

// nextIsOld reports whether the next event is one of the events since the version with which the
// watch began, or of an existing object.
func (s *sharingWatch) nextIsOld() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.live && s.old > 0 {
		s.old--
		return true
	}
	if !s.live {
		s.initial().expect(1)
	}
	return !s.live
}

// ResultChan implements watch.Interface.
func (s *sharingWatch) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *sharingWatch) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}

func (s *sharingWatch) run(events *sharedEvents) {
	defer close(s.result)
	defer s.Interface.Stop()
	for event := range s.Interface.ResultChan() {
		_, common := event.Object.(runtime.CacheableObject)
		left, old := !common && event.Type == watch.Deleted, s.nextIsOld()
		if left && !old && len(s.result) == cap(s.result) {
			return
		}
		if accessor, ok := event.Object.(metav1.Object); ok && accessor.GetUID() != "" && (common || left || !old) {
			key := eventKey{accessor.GetUID(), accessor.GetResourceVersion(), event.Type == watch.Deleted}
			event.Object = &watchedObject{events.of(key, event.Object, accessor), shareOf(s.ctx)}
		}
		select {
		case s.result <- event:
		case <-s.stopped:
			return
		// The library does not stop a watch whose client accepts no format of the response: it only
		// cancels the context (handleWatch in k8s.io/apiserver/pkg/endpoints/handlers).
		case <-s.ctx.Done():
			return
		}
	}
}

// sharedObject is an object that is encoded once for each encoding. It must not be modified.
type sharedObject struct {
	metav1.Object
	object  runtime.Object // object of the library
	size    func() int64   // bytes
	mutex   sync.Mutex
	encoded map[runtime.Identifier]func() ([]byte, error)
}

// encodedBy returns a function that returns the object in an encoding.
func (o *sharedObject) encodedBy(id runtime.Identifier,
	encode func(runtime.Object, io.Writer) error) func() ([]byte, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if encoded := o.encoded[id]; encoded != nil {
		return encoded
	}
	encoded := sync.OnceValues(func() ([]byte, error) {
		var buffer bytes.Buffer
		err := encode(o.copy(), &buffer)
		time.AfterFunc(keepEncoded, func() {
			o.mutex.Lock()
			defer o.mutex.Unlock()
			delete(o.encoded, id)
		})
		return buffer.Bytes(), err
	})
	if o.encoded == nil {
		o.encoded = map[runtime.Identifier]func() ([]byte, error){}
	}
	o.encoded[id] = encoded
	return encoded
}

// copy returns a copy of the object of the library.
func (o *sharedObject) copy() runtime.Object {
	if common, ok := o.object.(runtime.CacheableObject); ok {
		return common.GetObject()
	}
	return o.object.DeepCopyObject()
}

// GetObjectKind implements runtime.Object.
func (o *sharedObject) GetObjectKind() schema.ObjectKind { return o.object.GetObjectKind() }
