// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

const gadgets = "/apis/workshop.example.com/v1/gadgets"

var resource = v1.SchemeGroupVersion.WithResource("gadgets")

// watched records when the object of each name arrived.
type watched struct {
	sync.Mutex
	at map[string]time.Time
}

// create creates a gadget and returns the time when the request was sent.
func create(b *testing.B, client dynamic.Interface, name, ballast string) time.Time {
	b.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.SchemeGroupVersion.String(), "kind": "Gadget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"purpose": "is carried"},
	}}
	if ballast != "" {
		obj.SetAnnotations(map[string]string{"example.com/ballast": ballast})
	}
	began := time.Now()
	if _, err := client.Resource(resource).Create(b.Context(), obj, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return began
}

// createBig creates enough objects for a list of 5 MiB, and returns their total size in bytes.
// Their data is random, so it hardly compresses.
func createBig(b *testing.B, client dynamic.Interface) int {
	b.Helper()
	const size, total = 200 << 10, 5 << 20 // an object's annotations are limited to 256 KiB
	random := rand.NewChaCha8([32]byte{1})
	n := 0
	for ; n*size < total; n++ {
		data := make([]byte, size/2)
		_, _ = random.Read(data)
		create(b, client, fmt.Sprintf("big-%d", n), fmt.Sprintf("%x", data))
	}
	return n * size
}

// watchesOf creates gadgets while a watch is open through each route. Each watch must deliver all
// of them.
func watchesOf(b *testing.B, routes []*route, client dynamic.Interface) {
	ctx, end := context.WithCancel(b.Context())
	defer end()
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range routes {
		through, err := dynamic.NewForConfig(r.config)
		if err != nil {
			b.Fatal(err)
		}
		w, err := through.Resource(resource).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
		r.watched.at = map[string]time.Time{}
		go func() {
			for event := range w.ResultChan() {
				obj, isObject := event.Object.(*unstructured.Unstructured)
				r.watched.Lock()
				if isObject {
					r.watched.at[obj.GetName()] = time.Now()
				}
				r.watched.Unlock()
			}
		}()
	}
	sent := map[string]time.Time{}
	for i := range rounds * events {
		name := fmt.Sprintf("watched-%d", i)
		sent[name] = create(b, client, name, "")
	}
	var direct time.Duration
	for _, r := range routes {
		delays := r.delays(b, sent)
		p50 := quantile(delays, 50)
		if direct == 0 {
			direct = p50
		}
		times := float64(p50) / float64(direct)
		b.Logf("watch  %-18s p50 %-10s p99 %-10s %d of %d events  p50 %.2f x direct", r.name, round(p50),
			round(quantile(delays, 99)), len(delays), len(sent), times)
		b.ReportMetric(times, r.name+"-watch-x")
	}
}

// delays returns, in order, the times from the create request to the event of each object. It
// fails the benchmark for missing events.
func (r *route) delays(b *testing.B, sent map[string]time.Time) []time.Duration {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		r.watched.Lock()
		n := len(r.watched.at)
		r.watched.Unlock()
		if n >= len(sent) {
			break
		}
		<-tick.C
	}
	r.watched.Lock()
	defer r.watched.Unlock()
	var delays []time.Duration
	for name, began := range sent {
		at, came := r.watched.at[name]
		if !came {
			b.Errorf("watch through %s: %s did not come within a minute", r.name, name)
			continue
		}
		delays = append(delays, at.Sub(began))
	}
	slices.Sort(delays)
	if len(delays) == 0 {
		b.Fatalf("watch through %s: nothing came", r.name)
	}
	return delays
}
