// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestEngineLabelSelectors: each form of a label selector selects the same objects in a list, at any resource version, and
// in a watch.
func TestEngineLabelSelectors(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		start := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
		for name, labels := range map[string]map[string]string{
			"red-5":  {"color": "red", "size": "5"},
			"red":    {"color": "red"},
			"blue-7": {"color": "blue", "size": "7"},
			"void":   {"color": ""},
			"plain":  nil,
			"other":  {"example.com/other": "x"},
		} {
			k.create(t, client, name, labels)
		}
		now := mustList(t, client, metav1.ListOptions{}).GetResourceVersion()
		for _, tc := range []struct {
			selector string
			want     []string
		}{
			{"color=red", []string{"red", "red-5"}},
			{"color==red", []string{"red", "red-5"}},
			{"color=", []string{"void"}},
			{"color!=red", []string{"blue-7", "other", "plain", "void"}},
			{"color in (red,blue)", []string{"blue-7", "red", "red-5"}},
			{"color notin (red,blue)", []string{"other", "plain", "void"}},
			{"color", []string{"blue-7", "red", "red-5", "void"}},
			{"!color", []string{"other", "plain"}},
			{"size>5", []string{"blue-7"}},
			{"size<6", []string{"red-5"}},
			{"color=red,size", []string{"red-5"}},
			{"color=red,!size", []string{"red"}},
			{"color in (red),size notin (5)", []string{"red"}},
			{"example.com/other=x", []string{"other"}},
			{"color=green", []string{}},
			{"color=red,color=blue", []string{}},
			{"", []string{"blue-7", "other", "plain", "red", "red-5", "void"}},
		} {
			t.Run(tc.selector, func(t *testing.T) {
				for _, options := range []metav1.ListOptions{
					{}, {ResourceVersion: "0"}, {ResourceVersion: now, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
				} {
					options.LabelSelector = tc.selector
					if diff := cmp.Diff(tc.want, objectNames(mustList(t, client, options).Items)); diff != "" {
						t.Errorf("list with %+v (-want +got):\n%s", options, diff)
					}
				}
				// The one watch is told what is there, the other what has happened.
				objects, _ := initialEvents(t, k, mustWatch(t, client, func() metav1.ListOptions {
					options := watchListOptions("")
					options.LabelSelector = tc.selector
					return options
				}()))
				if diff := cmp.Diff(tc.want, objectNames(objects)); diff != "" {
					t.Errorf("watch-list (-want +got):\n%s", diff)
				}
				events := mustWatch(t, client, metav1.ListOptions{LabelSelector: tc.selector, ResourceVersion: start})
				got := map[string]bool{}
				for range tc.want {
					got[nextObject(t, events, watch.Added).GetName()] = true
				}
				for _, name := range tc.want {
					if !got[name] {
						t.Errorf("watch: got ADDED of %v, want %v", got, tc.want)
					}
				}
			})
		}
	})
}

// TestEngineSelectingWatch: an object that stops matching is DELETED for a selecting watch, with its last matching state
// at the resource version of the change; when it matches again it is ADDED. Changes outside the selection are not told.
func TestEngineSelectingWatch(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		client := k.client(t, adminConfig(t, shared), namespace)
		options := metav1.ListOptions{LabelSelector: "in=yes", ResourceVersion: mustList(t, client, metav1.ListOptions{}).GetResourceVersion()}
		live := mustWatch(t, client, options)
		k.create(t, client, "o", nil)
		k.create(t, client, "other", map[string]string{"in": "no"})
		entered := patchLabel(t, client, "o", "in", "yes")
		changed := patchLabel(t, client, "o", "more", "1")
		left := patchLabel(t, client, "o", "in", "no")
		patchLabel(t, client, "other", "more", "2")
		patchLabel(t, client, "o", "more", "3")
		again := patchLabel(t, client, "o", "in", "yes")
		without := patchLabel(t, client, "o", "in", nil)
		back := patchLabel(t, client, "o", "in", "yes")
		mustDelete(t, client, "o")

		lastState := changed.DeepCopy()
		lastState.SetResourceVersion(left.GetResourceVersion())
		lastAgain := again.DeepCopy()
		lastAgain.SetResourceVersion(without.GetResourceVersion())
		for name, events := range map[string]watch.Interface{"live": live, "replayed": mustWatch(t, client, options)} {
			for i, want := range []watch.Event{
				{Type: watch.Added, Object: entered}, {Type: watch.Modified, Object: changed}, {Type: watch.Deleted, Object: lastState},
				{Type: watch.Added, Object: again}, {Type: watch.Deleted, Object: lastAgain}, {Type: watch.Added, Object: back},
			} {
				if diff := cmp.Diff(want.Object, any(nextObject(t, events, want.Type))); diff != "" {
					t.Errorf("%s: event %d, %s (-want +got):\n%s", name, i+1, want.Type, diff)
				}
			}
			gone := nextObject(t, events, watch.Deleted)
			if compareRV(t, gone.GetResourceVersion(), back.GetResourceVersion()) <= 0 {
				t.Errorf("%s: got the deletion at %s, want it after the last change at %s", name, gone.GetResourceVersion(), back.GetResourceVersion())
			}
		}
	})
}

// TestEngineMetadataSelectors: the field selectors that every kind has select by name and by namespace.
func TestEngineMetadataSelectors(t *testing.T) {
	eachReadKind(t, shared, func(t *testing.T, k readKind, namespace string) {
		config := adminConfig(t, shared)
		other := newNamespace(t, shared)
		labels := map[string]string{"test": namespace}
		for _, ns := range []string{namespace, other} {
			for _, name := range []string{"a", "b"} {
				k.create(t, k.client(t, config, ns), name, labels)
			}
		}
		for _, tc := range []struct {
			in, selector string
			want         map[string]int // how many objects in which namespace
		}{
			{namespace, "metadata.name=a", map[string]int{namespace: 1}},
			{namespace, "metadata.name==a", map[string]int{namespace: 1}},
			{namespace, "metadata.name!=a", map[string]int{namespace: 1}},
			{namespace, "metadata.name=c", map[string]int{}},
			{namespace, "metadata.namespace=" + namespace, map[string]int{namespace: 2}},
			{namespace, "metadata.namespace=" + other, map[string]int{}},
			{"", "metadata.namespace=" + other, map[string]int{other: 2}},
			{"", "metadata.namespace!=" + other, map[string]int{namespace: 2}},
			{"", "metadata.name=a", map[string]int{namespace: 1, other: 1}},
			{"", "metadata.name=a,metadata.namespace=" + namespace, map[string]int{namespace: 1}},
			{"", "metadata.name!=a,metadata.namespace=" + namespace, map[string]int{namespace: 1}},
			{"", "", map[string]int{namespace: 2, other: 2}},
		} {
			t.Run(tc.in+" "+tc.selector, func(t *testing.T) {
				client := k.client(t, config, tc.in)
				options := watchListOptions("")
				options.FieldSelector, options.LabelSelector = tc.selector, "test="+namespace
				watched, _ := initialEvents(t, k, mustWatch(t, client, options))
				listed := mustList(t, client, metav1.ListOptions{FieldSelector: options.FieldSelector, LabelSelector: options.LabelSelector})
				for how, objects := range map[string]int{"list": len(listed.Items), "watch": len(watched)} {
					if want := tc.want[namespace] + tc.want[other]; objects != want {
						t.Errorf("%s: got %d objects, want %d", how, objects, want)
					}
				}
				got := map[string]int{}
				for _, obj := range listed.Items {
					got[obj.GetNamespace()]++
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("list: objects by namespace (-want +got):\n%s", diff)
				}
			})
		}
	})
}
