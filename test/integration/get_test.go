// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEngineGetResourceVersion is the table for get, and what a list of one object by its name says of the past.
func TestEngineGetResourceVersion(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		h := newHistory(t, shared, k, namespace)
		r := newReader(t, shared)
		for _, tc := range []struct {
			name, resourceVersion string
			// oldest is the resource version that the answer must not be older than.
			oldest string
		}{
			{"unset: Most Recent", "", h.y},
			{"0: Any", "0", h.moments[0].resourceVersion},
			{"x: Not older than", h.x, h.x},
			{"y: Not older than", h.y, h.y},
		} {
			t.Run(tc.name, func(t *testing.T) {
				for _, name := range []string{"a", "b", "c"} {
					a := r.get(t, k.path(namespace)+"/"+name+"?resourceVersion="+tc.resourceVersion)
					if !h.showed(t, name, tc.oldest, a) {
						t.Errorf("%s: got %d %s, want what it was at resourceVersion %s or later", name, a.code, a.body, tc.oldest)
					}
				}
			})
		}
		past := r.get(t, k.path(namespace)+"?fieldSelector=metadata.name%3Db&resourceVersionMatch=Exact&resourceVersion="+h.x).list(t)
		if diff := cmp.Diff(h.at(t, h.x)[1:], past.Items); diff != "" || past.GetResourceVersion() != h.x {
			t.Errorf("list of b at x: got resourceVersion %s, want %s; objects (-want +got):\n%s", past.GetResourceVersion(), h.x, diff)
		}
	})
}

// TestEngineReadYourWrite: each kind of read that promises it shows a write that has just been answered, every time.
func TestEngineReadYourWrite(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		r := newReader(t, shared)
		k.create(t, client, "o", nil)
		for round := range 20 {
			want := patchLabel(t, client, "o", "round", string(rune('a'+round)))
			rv := want.GetResourceVersion()
			for _, query := range []string{
				"?", "?limit=1", "?fieldSelector=metadata.name%3Do", "?labelSelector=round", "?resourceVersion=" + rv,
				"?limit=1&resourceVersion=" + rv, "?resourceVersionMatch=NotOlderThan&resourceVersion=" + rv, "?resourceVersionMatch=Exact&resourceVersion=" + rv,
			} {
				if diff := cmp.Diff([]unstructured.Unstructured{*want}, r.get(t, k.path(namespace)+query).list(t).Items); diff != "" {
					t.Fatalf("list %s after the write of round %d (-write +list):\n%s", query, round, diff)
				}
			}
			for _, query := range []string{"?", "?resourceVersion=" + rv} {
				got := &unstructured.Unstructured{}
				if err := got.UnmarshalJSON(r.get(t, k.path(namespace)+"/o"+query).body); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("get %s after the write of round %d (-write +get):\n%s", query, round, diff)
				}
			}
		}
	})
}
