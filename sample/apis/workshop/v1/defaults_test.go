// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// checkDefaults gives the object its defaults and compares. A second time must change nothing: defaults run again each
// time that the object is read.
func checkDefaults(t *testing.T, obj, want runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, time := range []string{"first", "second"} {
		scheme.Default(obj)
		if diff := cmp.Diff(want, obj); diff != "" {
			t.Errorf("object with defaults, %s time (-want +got):\n%s", time, diff)
		}
	}
}
