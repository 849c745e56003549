// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "example.com/extension-apiserver/sample/apis/workshop/v1"
)

// TestPaths checks that a field of another version is converted to the v1 field that Paths lists.
func TestPaths(t *testing.T) {
	for _, gv := range widgetVersions() {
		for path, in := range Kind.Paths[gv.Version] {
			t.Run(gv.Version+"/"+in, func(t *testing.T) {
				var value any = "premium"
				if strings.Contains(strings.ToLower(path), "replicas") {
					value = int64(3)
				}
				scheme, written, want := newScheme(), map[string]any{}, map[string]any{}
				for at, content := range map[string]map[string]any{in: written, path: want} {
					if err := unstructured.SetNestedField(content, value, strings.Split(at, ".")...); err != nil {
						t.Fatal(err)
					}
				}
				versioned, err := scheme.New(gv.WithKind("Widget"))
				if err != nil {
					t.Fatal(err)
				}
				wanted, got := &v1.Widget{}, &v1.Widget{}
				for content, obj := range map[*map[string]any]runtime.Object{&written: versioned, &want: wanted} {
					if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(*content, obj,
						true); err != nil {
						t.Fatal(err)
					}
				}
				if err := scheme.Convert(versioned, got, nil); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(wanted, got); diff != "" {
					t.Errorf("widget of a client that sets %s (-want +got):\n%s", in, diff)
				}
			})
		}
	}
}
