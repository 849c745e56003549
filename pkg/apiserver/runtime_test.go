// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestCheckInformers: checkInformers returns an error until the informers of admission plugins
// have started and synced.
func TestCheckInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		r := &Runtime{Informers: informers.NewSharedInformerFactory(client, 0)}
		r.Informers.Core().V1().Namespaces().Informer()
		if err := r.checkInformers(); err == nil {
			t.Error("informers that have not started: got no error")
		}
		r.startInformers(ctx)
		synctest.Wait()
		if err := r.checkInformers(); err != nil {
			t.Errorf("informers that have synced: %v", err)
		}
		cancel()
		r.Informers.Shutdown()
	})
}

// TestReaderOutside: Reader returns an error for a context that does not belong to a request.
func TestReaderOutside(t *testing.T) {
	if _, err := RuntimeFrom(t.Context()).Reader(v1.Resource("gadgets")); err == nil {
		t.Error("got no error")
	}
}
