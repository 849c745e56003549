// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"context"
	"fmt"
	"io"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

func podVersion(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: version}}
}

// common is an object that the library would encode once and keep encoded.
type common struct{ *corev1.Pod }

func (common) CacheEncode(runtime.Identifier, func(runtime.Object, io.Writer) error, io.Writer) error {
	panic("the library keeps the encoded object")
}

func (c common) GetObject() runtime.Object { return c.DeepCopy() }

// TestSharedEvents checks that an object that was changed, or that left the selectors of two
// watches, is encoded once for each encoding. Other versions of the object and initial events are
// not shared.
func TestSharedEvents(t *testing.T) { synctest.Test(t, testSharedEvents) }

func testSharedEvents(t *testing.T) {
	var events sharedEvents
	share := func(all ...watch.Event) watch.Interface {
		w := watch.NewFakeWithChanSize(len(all), false)
		for _, event := range all {
			w.Action(event.Type, event.Object)
		}
		return shareLive(t, &events, w)
	}
	a := share(watch.Event{Type: watch.Deleted, Object: podVersion("1")},
		watch.Event{Type: watch.Deleted, Object: podVersion("2")},
		watch.Event{Type: watch.Modified, Object: common{podVersion("2")}})
	defer a.Stop()
	b := share(watch.Event{Type: watch.Deleted, Object: podVersion("1")},
		watch.Event{Type: watch.Modified, Object: common{podVersion("2")}})
	defer b.Stop()
	encodings := map[string]int{}
	encode := func(event watch.Event, as runtime.Identifier) {
		t.Helper()
		text := string(as) + ", " + string(event.Type) + " of version " + event.Object.(metav1.Object).GetResourceVersion()
		var written bytes.Buffer
		err := event.Object.(runtime.CacheableObject).CacheEncode(as, func(o runtime.Object, w io.Writer) error {
			encodings[text]++
			_, err := fmt.Fprint(w, as, ", ", event.Type, " of version ", o.(*corev1.Pod).ResourceVersion)
			return err
		}, &written)
		if err != nil || written.String() != text {
			t.Errorf("encoded %q, %v, want %q", &written, err, text)
		}
	}
	first, second := <-a.ResultChan(), <-b.ResultChan()
	encode(first, "JSON")
	encode(second, "JSON")
	encode(second, "protobuf")
	encode(<-a.ResultChan(), "JSON")
	first, second = <-a.ResultChan(), <-b.ResultChan()
	encode(first, "JSON")
	encode(second, "JSON")
	for text, times := range encodings {
		if times != 1 {
			t.Errorf("%s: encoded %d times, want once", text, times)
		}
	}
	if len(encodings) != 4 {
		t.Errorf("encoded %v, want two encodings of version 1 and one of each event of version 2", encodings)
	}
	<-time.After(keepEncoded)
	synctest.Wait()
	encode(second, "JSON")
	if n := encodings["JSON, MODIFIED of version 2"]; n != 2 {
		t.Errorf("an object is encoded %d times, want it encoded again after a while", n)
	}
}

// TestSharedEventsUnread checks that a watch whose client does not read ends when an object leaves
// its selector and would have to be copied. The watch sends the events that it received before.
// Stop ends a watch that waits for its client.
func TestSharedEventsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events sharedEvents
		library := watch.NewRaceFreeFake()
		w := shareLive(t, &events, library)
		for i := range eventsAhead + 1 {
			library.Delete(podVersion(fmt.Sprint(i)))
		}
		synctest.Wait()
		if !library.IsStopped() {
			t.Error("the watch continues, want it stopped")
		}
		got := 0
		for range w.ResultChan() {
			got++
		}
		if got != eventsAhead {
			t.Errorf("the watch sent %d events, want %d", got, eventsAhead)
		}

		waiting := watch.NewRaceFreeFake()
		w = shareLive(t, &events, waiting)
		for range eventsAhead + 2 {
			waiting.Modify(podVersion("1"))
		}
		synctest.Wait()
		if waiting.IsStopped() {
			t.Error("a watch with unread changes is stopped, want it to wait for its client")
		}
		w.Stop()
		synctest.Wait() // synctest fails if the goroutine does not end
	})
}

// TestSharedEventsRejected checks that a watch ends with its context. The library does not stop a
// watch that it rejects because the client accepts no format of the response.
func TestSharedEventsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events sharedEvents
		library := watch.NewRaceFreeFake()
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := events.watch(ctx, func(context.Context) (watch.Interface, error) { return library, nil }); err != nil {
			t.Fatal(err)
		}
		for range eventsAhead + 2 {
			library.Modify(podVersion("1"))
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !library.IsStopped() {
			t.Error("the watch continues after its context is done, want it stopped")
		}
	})
}

// shareLive shares a watch that has no events since an old version.
func shareLive(t *testing.T, events *sharedEvents, w watch.Interface) watch.Interface {
	t.Helper()
	shared, err := events.watch(t.Context(), func(context.Context) (watch.Interface, error) { return w, nil })
	if err != nil {
		t.Fatal(err)
	}
	s := shared.(*sharingWatch)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.live = true
	return s
}

// TestSharedEventsOld checks that a watch that begins with many deletions since an old version
// sends them all, however slow its client is.
func TestSharedEventsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deletions = 5 * eventsAhead
		var events sharedEvents
		library, signal := watch.NewFakeWithChanSize(eventsAhead, false), utilflowcontrol.NewInitializationSignal()
		ctx := utilflowcontrol.WithInitializationSignal(t.Context(), signal)
		w, err := events.watch(ctx, func(ctx context.Context) (watch.Interface, error) {
			go func() {
				for i := range deletions {
					library.Delete(podVersion(fmt.Sprint(i)))
				}
				utilflowcontrol.WatchInitialized(ctx)
			}()
			return library, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range deletions {
			<-time.After(time.Second)
			if event, ok := <-w.ResultChan(); !ok {
				t.Fatalf("the watch ends after %d of %d deletions", i, deletions)
			} else if got := event.Object.(metav1.Object).GetResourceVersion(); got != fmt.Sprint(i) {
				t.Errorf("got version %s, want %d", got, i)
			}
		}
		signal.Wait()
		w.Stop()
	})
}

// TestSharedEventsDeleted checks that an event that no watch has is deleted.
func TestSharedEventsDeleted(t *testing.T) {
	var events sharedEvents
	for i := range 1000 {
		object := podVersion(fmt.Sprint(i))
		events.of(eventKey{version: fmt.Sprint(i)}, object, object)
	}
	kept := podVersion("kept")
	shared := events.of(eventKey{version: "kept"}, kept, kept)
	known := func() int {
		events.mutex.Lock()
		defer events.mutex.Unlock()
		return len(events.known)
	}
	deadline := time.Now().Add(30 * time.Second)
	for known() > 1 && time.Now().Before(deadline) {
		goruntime.GC() // the cleanups run some time after it
		goruntime.Gosched()
	}
	if n := known(); n != 1 {
		t.Errorf("%d versions are known, want one", n)
	}
	if events.of(eventKey{version: "kept"}, kept, kept) != shared {
		t.Error("a version that a watch has is deleted")
	}
}
