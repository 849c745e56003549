// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const trustName = "extension-apiserver-authentication"

// trustMap is a ConfigMap of the trusted CAs that a test controls: the controller of
// kube-apiserver would restore its own. It serves get, list and watch, the last also with initial
// events (KEP-3157).
type trustMap struct {
	mu      sync.Mutex
	events  []metav1.WatchEvent // the event at i creates version i+1
	current *corev1.ConfigMap   // nil when it does not exist
	changed chan struct{}       // closed with the next change
}

// newTrustMap starts with the data of the real ConfigMap.
func newTrustMap(t *testing.T, r *relay) *trustMap {
	t.Helper()
	client, err := shared.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	cm, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), trustName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := &trustMap{changed: make(chan struct{})}
	m.set(cm.Data)
	r.script(trustPath, m.serve)
	return m
}

// data returns a copy of the ConfigMap's data, for a test to change.
func (m *trustMap) data() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.current.Data)
}

// set writes the ConfigMap.
func (m *trustMap) set(data map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := watch.Modified
	if m.current == nil {
		kind = watch.Added
	}
	m.current = &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trustName, UID: "1",
			ResourceVersion: strconv.Itoa(len(m.events) + 1)},
		Data: maps.Clone(data),
	}
	m.add(kind, m.current)
}

// remove deletes the ConfigMap.
func (m *trustMap) remove() {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.current.DeepCopy()
	last.ResourceVersion = strconv.Itoa(len(m.events) + 1)
	m.current = nil
	m.add(watch.Deleted, last)
}

func (m *trustMap) add(kind watch.EventType, cm *corev1.ConfigMap) {
	m.events = append(m.events, metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Object: cm}})
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *trustMap) state() (current *corev1.ConfigMap, events []metav1.WatchEvent, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current, m.events, m.changed
}

func (m *trustMap) serve(w http.ResponseWriter, req *http.Request) {
	current, events, _ := m.state()
	query := req.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(req.URL.Path, "/"+trustName) && current == nil:
		reply(http.StatusNotFound, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound))(w, req)
	case strings.HasSuffix(req.URL.Path, "/"+trustName):
		_ = json.NewEncoder(w).Encode(current)
	case query.Get("watch") == "1" || query.Get("watch") == "true":
		m.watch(w, req)
	default:
		list := corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(events))},
		}
		if current != nil {
			list.Items = append(list.Items, *current)
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (m *trustMap) watch(w http.ResponseWriter, req *http.Request) {
	current, events, changed := m.state()
	encoder, flush := json.NewEncoder(w), http.NewResponseController(w)
	sent := len(events)
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		if current != nil {
			_ = encoder.Encode(metav1.WatchEvent{Type: string(watch.Added),
				Object: runtime.RawExtension{Object: current}})
		}
		_ = encoder.Encode(metav1.WatchEvent{Type: string(watch.Bookmark),
			Object: runtime.RawExtension{Object: &corev1.ConfigMap{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: strconv.Itoa(sent),
					Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
				},
			}}})
	} else if from, err := strconv.Atoi(req.URL.Query().Get("resourceVersion")); err == nil && from < sent {
		sent = from
	}
	for {
		for ; sent < len(events); sent++ {
			_ = encoder.Encode(events[sent])
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-changed:
			_, events, changed = m.state()
		case <-req.Context().Done():
			return
		}
	}
}

// statusOf returns a Status as kube-apiserver does.
func statusOf(code int32, reason metav1.StatusReason) string {
	data, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: "scripted by a test",
	})
	return string(data)
}
