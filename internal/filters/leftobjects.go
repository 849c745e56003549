// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"io"
	goruntime "runtime"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// eventsAhead is how many events of a watch wait for its client here. The library has at least as many.
const eventsAhead = 10

// leftObjects are those of a storage that have left the selectors of watches: they were changed so that the selectors
// do not match any more. The library encodes an object once for all watches if it was created, changed or deleted, but
// copies and encodes one that has left for each watch (k8s.io/apiserver/pkg/storage/cacher, setCachingObjects). The
// zero value is ready for use.
type leftObjects struct {
	mutex sync.Mutex
	known map[objectVersion]weak.Pointer[leftObject]
}

// objectVersion has the version of the change by which the object left.
type objectVersion struct {
	uid     types.UID
	version string
}

// share returns the watch with such objects in common with others. A watch ends if it has another when its client has
// not read those before it: it would hold a copy of each.
func (l *leftObjects) share(w watch.Interface) watch.Interface {
	s := &sharingWatch{Interface: w, result: make(chan watch.Event, eventsAhead), stopped: make(chan struct{})}
	go s.run(l)
	return s
}

// of returns what the watches have in common, which is the object if it is the first.
func (l *leftObjects) of(object runtime.Object, accessor metav1.Object) *leftObject {
	key := objectVersion{accessor.GetUID(), accessor.GetResourceVersion()}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if o := l.known[key].Value(); o != nil {
		return o
	}
	if l.known == nil {
		l.known = map[objectVersion]weak.Pointer[leftObject]{}
	}
	o := &leftObject{Object: accessor, object: object}
	l.known[key] = weak.Make(o)
	goruntime.AddCleanup(o, l.forget, key)
	return o
}

// forget forgets a version that no watch has any more, unless another has come since.
func (l *leftObjects) forget(key objectVersion) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.known[key].Value() == nil {
		delete(l.known, key)
	}
}

type sharingWatch struct {
	watch.Interface
	result  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (s *sharingWatch) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *sharingWatch) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}

func (s *sharingWatch) run(left *leftObjects) {
	defer close(s.result)
	defer s.Interface.Stop()
	for event := range s.Interface.ResultChan() {
		_, encodedOnce := event.Object.(runtime.CacheableObject)
		accessor, hasMetadata := event.Object.(metav1.Object)
		if event.Type == watch.Deleted && !encodedOnce && hasMetadata && accessor.GetUID() != "" {
			if len(s.result) == cap(s.result) {
				return
			}
			event.Object = left.of(event.Object, accessor)
		}
		select {
		case s.result <- event:
		case <-s.stopped:
			return
		}
	}
}

// leftObject is an object that is encoded once for each encoding. It must not be changed.
type leftObject struct {
	metav1.Object
	object  runtime.Object
	mutex   sync.Mutex
	encoded map[runtime.Identifier]func() ([]byte, error)
}

// CacheEncode implements runtime.CacheableObject.
func (o *leftObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error,
	w io.Writer) error {
	o.mutex.Lock()
	encoded := o.encoded[id]
	if encoded == nil {
		encoded = sync.OnceValues(func() ([]byte, error) {
			var buffer bytes.Buffer
			err := encode(o.GetObject(), &buffer)
			return buffer.Bytes(), err
		})
		if o.encoded == nil {
			o.encoded = map[runtime.Identifier]func() ([]byte, error){}
		}
		o.encoded[id] = encoded
	}
	o.mutex.Unlock()
	data, err := encoded()
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// GetObject implements runtime.CacheableObject.
func (o *leftObject) GetObject() runtime.Object { return o.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (o *leftObject) GetObjectKind() schema.ObjectKind { return o.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (o *leftObject) DeepCopyObject() runtime.Object { return o.GetObject() }
