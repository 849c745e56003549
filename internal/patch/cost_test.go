// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestCheckStored checks that a patch is rejected if the product of the number of its operations
// and the length of the object's longest list is too large, or if it merges a list and the object
// has a list that is too long to be merged.
func TestCheckStored(t *testing.T) {
	finalizers := func(n int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, n)}}
	}
	raw := func(n int) *runtime.Unknown {
		return &runtime.Unknown{Raw: []byte("[0" + strings.Repeat(",0", n-1) + "]")}
	}
	managed := finalizers(10)
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(
		string(raw(maxStored + 100).Raw))}}
	list := make([]any, 200)
	list[100] = map[string]any{"a": make([]any, maxStored+1)}
	untyped := &unstructured.Unstructured{Object: map[string]any{"x": list, "y": nil}}
	for name, tc := range map[string]struct {
		stored  runtime.Object
		cost    Cost
		refused bool
	}{
		"no patch":                         {finalizers(1_000_000), Cost{}, false},
		"one operation":                    {finalizers(1_000_000), Cost{Operations: 1}, false},
		"many operations":                  {finalizers(maxMoved / 10_000), Cost{Operations: 10_000}, false},
		"many operations, long list":       {finalizers(maxMoved/10_000 + 1), Cost{Operations: 10_000}, true},
		"many operations, long raw JSON":   {raw(maxMoved/10_000 + 2), Cost{Operations: 10_000}, true},
		"many operations, managed fields":  {managed, Cost{Operations: 10_000}, false},
		"merged":                           {finalizers(maxStored), Cost{Merges: true}, false},
		"merged, long list":                {finalizers(maxStored + 1), Cost{Merges: true}, true},
		"merged, managed fields":           {managed, Cost{Merges: true}, false},
		"merged, long list within a value": {untyped, Cost{Merges: true}, true},
	} {
		err := CheckStored(WithCost(t.Context(), tc.cost), tc.stored)
		if apierrors.IsRequestEntityTooLargeError(err) != tc.refused || (err != nil) != tc.refused {
			t.Errorf("%s: got %v, want a refusal: %t", name, err, tc.refused)
		}
	}
}

// TestCosts checks that operations are counted, and that merged lists are found.
func TestCosts(t *testing.T) {
	body := "[" + strings.Repeat(`{"op":"test","path":"/x","value":[1,2]},`, 6) + `{"op":"remove","path":"/x"}]`
	if cost, err := JSON([]byte(body)); cost != (Cost{Operations: 7}) || err != nil {
		t.Errorf("got %v and %v, want 7 operations", cost, err)
	}
	for patch, want := range map[string]bool{
		`{"text":"a","words":["a"],"labels":{"a":"b"}}`: false,
		`{"parts":[{"name":"a"}]}`:                      true,
		`{"set":["a"]}`:                                 true,
		`{"$setElementOrder/set":["a"]}`:                true,
		`{"spec":{"parts":[]}}`:                         true,
	} {
		if cost, errs := Strategic(decode(t, patch), nil, objectType); cost.Merges != want || len(errs) > 0 {
			t.Errorf("%s: got %v and %v, want merges: %t", patch, cost, errs, want)
		}
	}
}
