// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"example.com/extension-apiserver/pkg/envtest"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestPurgeObjects checks that undeploy deletes objects in pages, because kube-apiserver ends a
// request after 60 s. A lost response to a page costs one more list. If objects remain, undeploy
// reports why.
func TestPurgeObjects(t *testing.T) {
	e := envtest.New(t, envtest.Options{ExternalEtcd: true})
	c, ours := newCluster(t, e), name
	c.label(&ours)
	gadgets := dynamic.NewForConfigOrDie(c.config).Resource(v1.SchemeGroupVersion.WithResource("gadgets"))
	create := func(name string, finalizers ...string) error {
		gadget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"purpose": "is deleted"}}}
		gadget.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Gadget"))
		gadget.SetName(name)
		gadget.SetFinalizers(finalizers)
		_, err := gadgets.Create(t.Context(), gadget, metav1.CreateOptions{})
		return err
	}

	if err := create("held", "example.com/hold"); err != nil {
		t.Fatal(err)
	}
	want := "undeploy: 1 gadgets remain, and none was deleted within 2 s; check their finalizers, and run " +
		"this again"
	if last, out, _, err := c.purge("TIMEOUT=2", nil); err == nil || last != want {
		t.Errorf("with a finalizer: %v and:\n%s\nwant %q", err, out, want)
	}
	want = "EOF; 1 remain"
	if last, out, _, err := c.purge("TIMEOUT=60", func(int) bool { return true }); err == nil ||
		!strings.HasSuffix(last, want) {
		t.Errorf("when every response is lost: %v and:\n%s\nwant %q", err, out, want)
	}
	if _, err := gadgets.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	var creators errgroup.Group
	creators.SetLimit(16)
	for i := range 3500 {
		creators.Go(func() error { return create(fmt.Sprintf("gadget-%d", i)) })
	}
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	// The first request deletes 1,000 objects, but its response is lost. Three pages delete the
	// other 2,500.
	_, out, requests, err := c.purge("TIMEOUT=60", func(n int) bool { return n == 1 })
	if rounds := strings.Count(out, " gadgets\n"); err != nil || requests != 4 || rounds != 2 {
		t.Errorf("when one response is lost: %v, %d requests after %d lists, want 4 after 2:\n%s", err,
			requests, rounds, out)
	}
	etcd, err := e.EtcdClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left, err := etcd.Get(t.Context(), "/registry/"+group+"/gadgets/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count > 0 {
		t.Errorf("%d gadgets are in etcd at the end (%v), want none", left.Count, err)
	}
}

// purge undeploys an overlay with an external etcd, with its data. lost selects the requests to
// delete gadgets, counted from 1, whose response is lost.
func (c cluster) purge(timeout string, lost func(n int) bool) (last, out string, requests int, err error) {
	c.Helper()
	f, kubeconfig := newFront(c.T, c.config, nil)
	f.cut = func(r *http.Response) error {
		if r.Request.Method != http.MethodDelete || !strings.HasSuffix(r.Request.URL.Path, "/gadgets") {
			return nil
		}
		if requests++; lost != nil && lost(requests) {
			return errors.New("lost")
		}
		return nil
	}
	last, out, err = script(c.T, "undeploy.sh", "KUBECONFIG="+kubeconfig, timeout, "PURGE=1",
		"OVERLAY="+overlay(c.T, production))
	return last, out, requests, err
}
