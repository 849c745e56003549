// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// TestEngineListSnapshot: all pages of a list show the moment of the first, whatever is written in between, and each page
// may have another limit. Controllers and kubectl read large collections in this way.
func TestEngineListSnapshot(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		for i := range 7 {
			k.create(t, client, fmt.Sprintf("o%d0", i), nil)
		}
		before := mustList(t, client, metav1.ListOptions{})
		first := mustList(t, client, metav1.ListOptions{Limit: 3})

		mustDelete(t, client, "o10")
		mustDelete(t, client, "o50")
		patchLabel(t, client, "o40", "changed", "yes")
		k.create(t, client, "o35", nil)
		k.create(t, client, "o99", nil)

		second := mustList(t, client, metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
		third := mustList(t, client, metav1.ListOptions{Continue: second.GetContinue()})
		for i, page := range []struct {
			list      *unstructured.UnstructuredList
			names     []string
			remaining *int64
			last      bool
		}{
			{first, []string{"o00", "o10", "o20"}, new(int64(4)), false},
			{second, []string{"o30", "o40"}, new(int64(2)), false},
			{third, []string{"o50", "o60"}, nil, true},
		} {
			if diff := cmp.Diff(page.names, objectNames(page.list.Items)); diff != "" {
				t.Errorf("page %d: names (-want +got):\n%s", i+1, diff)
			}
			if diff := cmp.Diff(page.remaining, page.list.GetRemainingItemCount()); diff != "" {
				t.Errorf("page %d: remainingItemCount (-want +got):\n%s", i+1, diff)
			}
			if (page.list.GetContinue() == "") != page.last {
				t.Errorf("page %d: got continue %q, want an empty one: %t", i+1, page.list.GetContinue(), page.last)
			}
			if got, want := page.list.GetResourceVersion(), first.GetResourceVersion(); got != want {
				t.Errorf("page %d: got resourceVersion %s, want that of the first page, %s", i+1, got, want)
			}
		}
		all := append(append(first.Items, second.Items...), third.Items...)
		if diff := cmp.Diff(before.Items, all); diff != "" {
			t.Errorf("the pages together are not the list at the first page (-list +pages):\n%s", diff)
		}
		now := mustList(t, client, metav1.ListOptions{Limit: 100})
		if diff := cmp.Diff([]string{"o00", "o20", "o30", "o35", "o40", "o60", "o99"}, objectNames(now.Items)); diff != "" ||
			now.Items[4].GetLabels()["changed"] != "yes" {
			t.Errorf("a new list does not show what was written (-want +got):\n%s", diff)
		}
	})
}

// allPages reads a list to its end.
func allPages(t *testing.T, client dynamic.ResourceInterface, options metav1.ListOptions) []*unstructured.UnstructuredList {
	t.Helper()
	var out []*unstructured.UnstructuredList
	for {
		page := mustList(t, client, options)
		if int64(len(page.Items)) > options.Limit {
			t.Fatalf("page %d: got %d objects, want at most %d", len(out)+1, len(page.Items), options.Limit)
		}
		out = append(out, page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out
		}
		if len(out) > 20 {
			t.Fatal("got more than 20 pages, want an end")
		}
	}
}

// TestEngineListPageSizes: with every limit each object comes once and in order, remainingItemCount is exact, and a page
// that ends with the last object says that it is the last.
func TestEngineListPageSizes(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		const count = 6
		// Not created in the order of the names.
		for _, i := range []int{3, 0, 5, 1, 4, 2} {
			k.create(t, client, fmt.Sprintf("o%d", i), nil)
		}
		for limit := 1; limit <= count+1; limit++ {
			t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
				seen := 0
				for i, page := range allPages(t, client, metav1.ListOptions{Limit: int64(limit)}) {
					var want []string
					for range min(limit, count-seen) {
						want = append(want, fmt.Sprintf("o%d", seen))
						seen++
					}
					if diff := cmp.Diff(want, objectNames(page.Items)); diff != "" {
						t.Errorf("page %d (-want +got):\n%s", i+1, diff)
					}
					var remaining *int64
					if seen < count {
						remaining = new(int64(count - seen))
					}
					if diff := cmp.Diff(remaining, page.GetRemainingItemCount()); diff != "" {
						t.Errorf("page %d: remainingItemCount (-want +got):\n%s", i+1, diff)
					}
				}
				if seen != count {
					t.Errorf("got %d objects in all pages, want %d", seen, count)
				}
			})
		}
	})
}

// TestEngineListSelectedPages: pages of a selection are complete; how many objects remain is not told, since the server
// does not know it.
func TestEngineListSelectedPages(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		for i := range 9 {
			k.create(t, client, fmt.Sprintf("o%d", i), map[string]string{"mod3": fmt.Sprint(i % 3)})
		}
		for name, tc := range map[string]struct {
			options metav1.ListOptions
			want    []string
		}{
			"labels": {metav1.ListOptions{LabelSelector: "mod3!=1"}, []string{"o0", "o2", "o3", "o5", "o6", "o8"}},
			"fields": {metav1.ListOptions{FieldSelector: "metadata.name!=o3"}, []string{"o0", "o1", "o2", "o4", "o5", "o6", "o7", "o8"}},
			"both":   {metav1.ListOptions{LabelSelector: "mod3=0", FieldSelector: "metadata.name!=o3"}, []string{"o0", "o6"}},
			"none":   {metav1.ListOptions{LabelSelector: "mod3=7"}, []string{}},
		} {
			t.Run(name, func(t *testing.T) {
				for limit := int64(1); limit <= 3; limit++ {
					tc.options.Limit = limit
					got := []string{}
					for _, page := range allPages(t, client, tc.options) {
						got = append(got, objectNames(page.Items)...)
						if page.GetRemainingItemCount() != nil {
							t.Errorf("limit %d: got remainingItemCount %d, want none with a selector", limit, *page.GetRemainingItemCount())
						}
					}
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("limit %d: names (-want +got):\n%s", limit, diff)
					}
				}
			})
		}
	})
}

// TestEngineListAllNamespaces: a list of all namespaces is one list, ordered by namespace and name, that pages cut anywhere.
func TestEngineListAllNamespaces(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		config := adminConfig(t, shared)
		namespaces := []string{namespace, newNamespace(t, shared)}
		if namespaces[0] > namespaces[1] {
			namespaces[0], namespaces[1] = namespaces[1], namespaces[0]
		}
		var want []string
		for _, ns := range namespaces {
			for _, name := range []string{"a", "b", "c"} {
				k.create(t, k.client(t, config, ns), name, map[string]string{"test": namespace})
				want = append(want, ns+"/"+name)
			}
		}
		everywhere := k.client(t, config, "")
		var got []string
		for _, page := range allPages(t, everywhere, metav1.ListOptions{Limit: 2, LabelSelector: "test=" + namespace}) {
			for _, obj := range page.Items {
				got = append(got, obj.GetNamespace()+"/"+obj.GetName())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("objects of two namespaces (-want +got):\n%s", diff)
		}

		// Other tests write meanwhile; the pages of one list do not see it.
		first := mustList(t, everywhere, metav1.ListOptions{Limit: 1})
		rest := mustList(t, everywhere, metav1.ListOptions{Continue: first.GetContinue()})
		if remaining := first.GetRemainingItemCount(); remaining == nil || *remaining != int64(len(rest.Items)) {
			t.Errorf("got remainingItemCount %v, want the %d objects of the next page", remaining, len(rest.Items))
		}
	})
}
