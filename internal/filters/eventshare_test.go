// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestEventShares checks that the watches of a user that send a large object at the same time wait
// for its memory before they copy it, and give the memory back when they have sent it. Those that
// send a small object do not wait.
func TestEventShares(t *testing.T) {
	const watches = 20
	encode := func(o runtime.Object, w io.Writer) error {
		_, err := w.Write(make([]byte, len(o.(*corev1.Pod).Name)))
		return err
	}
	copied := func(o *watchedObject) { _ = o.GetObject() }
	encoded := func(o *watchedObject) {
		if err := o.CacheEncode("JSON", encode, io.Discard); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		size  int64 // of the object, in bytes
		start func(*watchedObject)
		cost  int64
	}{
		"encoded":       {2 << 20, encoded, encodedCost * 2 << 20},
		"copied":        {1 << 20, copied, copiedCost * 1 << 20},
		"small":         {placeCost / encodedCost, encoded, 0},
		"copied, small": {placeCost / copiedCost / 2, copied, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, events := testMemory(t), &sharedEvents{}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(bytes.Repeat([]byte("x"), int(tc.size)))}}
				var sending, sent atomic.Int64
				most := int64(watches)
				if tc.cost > 0 {
					most = m.perUser / tc.cost
				}
				for range watches {
					go serveWatch(t, m, "resourceVersion=0", func(w http.ResponseWriter, req *http.Request) {
						tc.start(&watchedObject{events.of(eventKey{}, pod, pod), shareOf(req.Context())})
						if n := sending.Add(1); n > most {
							t.Errorf("%d watches send the object, want at most %d", n, most)
						}
						<-time.After(time.Second)
						sending.Add(-1)
						_, _ = w.Write(nil)
						sent.Add(1)
						<-time.After(time.Minute) // without the memory
					})
				}
				<-time.After(time.Minute)
				if n := sent.Load(); n != watches {
					t.Errorf("%d watches have sent the object, want %d", n, watches)
				}
				<-time.After(time.Minute)
				if used := m.budget.InUse(); used != 0 {
					t.Errorf("%d bytes are in use after the watches", used)
				}
			})
		})
	}
}
