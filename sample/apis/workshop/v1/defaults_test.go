// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// checkDefaults applies the defaults to the object and compares the result. It applies them
// twice, because the server does so each time it reads an object: the second time must change
// nothing.
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
