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
	lengths := lengths{raw: true}
	lengths.see(reflect.ValueOf(stored))
	switch longest := lengths.list; {
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

// Longest returns the number of elements in the longest list of an object, and in its longest map.
func Longest(object runtime.Object) (list, mapped int) {
	var l lengths
	l.see(reflect.ValueOf(object))
	return l.list, l.mapped
}

// lengths are those of the longest list and the longest map in a value.
type lengths struct {
	list, mapped int
	raw          bool // count the commas in bytes too, which may be JSON
}

func (l *lengths) see(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			l.see(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.FieldsV1]() {
			return // has no lists
		}
		for _, value := range v.Fields() {
			l.see(value)
		}
	case reflect.Map:
		l.mapped = max(l.mapped, v.Len())
		for _, value := range v.Seq2() {
			l.see(value)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if l.raw && v.Kind() == reflect.Slice {
				l.list = max(l.list, bytes.Count(v.Bytes(), []byte(",")))
			}
			return
		}
		l.list = max(l.list, v.Len())
		for i := range v.Len() {
			l.see(v.Index(i))
		}
	}
}
