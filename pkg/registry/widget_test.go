// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"example.com/extension-apiserver/pkg/apis/workshop/install"
)

// TestWidgetConsoleIsLongRunning: the console is the one subresource that no timeout of requests may end.
func TestWidgetConsoleIsLongRunning(t *testing.T) {
	group, _, err := newGroup(t, &unconnected{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"console"}, sets.List(LongRunning(group))); diff != "" {
		t.Errorf("long-running subresources (-want +got):\n%s", diff)
	}
}

// TestWidgetSubresources: every version that serves widgets serves all of their subresources.
func TestWidgetSubresources(t *testing.T) {
	group, scheme, err := newGroup(t, &unconnected{})
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range install.GroupVersions() {
		if !scheme.Recognizes(gv.WithKind("Widget")) {
			continue
		}
		var got []string
		for path := range group.VersionedResourcesStorageMap[gv.Version] {
			if strings.HasPrefix(path, "widgets") {
				got = append(got, path)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"widgets", "widgets/console", "widgets/scale", "widgets/status"}, got); diff != "" {
			t.Errorf("resources of %s (-want +got):\n%s", gv, diff)
		}
	}
}
