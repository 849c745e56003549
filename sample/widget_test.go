// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/randfill"

	"example.com/extension-apiserver/sample/apis/workshop/install"
	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

func init() {
	fuzzers = append(fuzzers, func(s *v1.WidgetSpec, c randfill.Continue) {
		c.FillNoCustom(s)
		// v1alpha1 stores the materials by part name, so the names must be unique.
		for i := range s.Parts {
			s.Parts[i].Name += fmt.Sprintf("-%d", i)
		}
	})
}

// TestWidgetSubresources checks that every version that serves widgets serves all their
// subresources.
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
		if diff := cmp.Diff([]string{"widgets", "widgets/calibrate", "widgets/console", "widgets/log", "widgets/scale",
			"widgets/status"}, got); diff != "" {
			t.Errorf("resources of %s (-want +got):\n%s", gv, diff)
		}
	}
}
