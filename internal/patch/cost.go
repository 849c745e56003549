// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxStored is the maximum length of a list of the object if a strategic merge patch merges a
// list, because the library compares each element with each other element.
const maxStored = 10_000

// Cost describes the properties of a patch with which its time grows with the lists of the stored
// object.
type Cost struct {
	// Operations is the number of operations of a JSON patch.
	Operations int
	// Merges is true if a strategic merge patch merges a list.
	Merges bool
}

type costKey struct{}

// WithCost returns a context for the update of the patched object. CheckStored reads the cost from
// it.
func WithCost(ctx context.Context, cost Cost) context.Context {
	return context.WithValue(ctx, costKey{}, cost)
}

// CheckStored returns an error with status 413 if the lists of the stored object are too long for
// the patch of the context.
func CheckStored(ctx context.Context, stored runtime.Object) error {
	cost, _ := ctx.Value(costKey{}).(Cost)
	if cost == (Cost{}) {
		return nil
	}
	longest := longestList(reflect.ValueOf(stored), true)
	switch {
	case cost.Operations*longest > maxMoved:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the number of operations of a JSON patch, %d, multiplied by the number of elements "+
				"in the longest list of the object, %d, may be at most %d", cost.Operations, longest, maxMoved))
	case cost.Merges && longest > maxStored:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the longest list of the object has %d elements, and may have %d for a strategic merge "+
				"patch that merges a list; send a merge patch, a JSON patch or an apply configuration",
			longest, maxStored))
	}
	return nil
}

// LongestList returns the number of elements in the longest list of an object.
func LongestList(object runtime.Object) int { return longestList(reflect.ValueOf(object), false) }

// longestList returns the number of elements in the longest list in v. If raw is true, it also
// counts the commas in bytes, which may be JSON.
func longestList(v reflect.Value, raw bool) int {
	longest := 0
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			longest = longestList(v.Elem(), raw)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.FieldsV1]() {
			return 0 // has no lists
		}
		for _, value := range v.Fields() {
			longest = max(longest, longestList(value, raw))
		}
	case reflect.Map:
		for _, value := range v.Seq2() {
			longest = max(longest, longestList(value, raw))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if raw && v.Kind() == reflect.Slice {
				longest = bytes.Count(v.Bytes(), []byte(","))
			}
			return longest
		}
		longest = v.Len()
		for i := range v.Len() {
			longest = max(longest, longestList(v.Index(i), raw))
		}
	}
	return longest
}
