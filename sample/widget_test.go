// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/extension-apiserver/sample/apis/workshop/install"
)

// TestWidgetSubresources: every version that serves widgets serves all of their subresources.
func TestWidgetSubresources(t *testing.T) {
	group, scheme := newGroup(t)
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
