// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mismatches are the beginnings of the library's messages for a patch that matches the type but
// cannot be merged into this object. The errors have no type of their own.
var mismatches = []string{
	"expected a []interface {}, but received a ", // an order for a list that is null in the object
	"map: map[",                              // an element of the object has no merge key
	"no elements in any of the given slices", // an order for an empty list
	"list element types are not identical: ", // strings and integers in one list
	// a merge into a composite value of a Go map or of a list
	"merging an object in json but data type is not struct",
	"unable to find api field in struct ", // a merge into a type that decodes JSON itself
	"unexpected slice of slice",           // a merge into a list of lists
	// an apply configuration that matches OpenAPI but not the Go type
	"failed to convert new object",
}

// StatusError returns an error with status 422 for the library's error for a patch that it cannot
// merge into the object called name. It returns any other error unchanged.
func StatusError(err error, resource schema.GroupResource, name string) error {
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) || !Mismatch(err.Error()) {
		return err
	}
	return Unmatched(err.Error(), schema.GroupKind{Group: resource.Group, Kind: resource.Resource}, name)
}

// Unmatched returns an error with status 422 for a patch that does not match the object called
// name. message is the library's message.
func Unmatched(message string, kind schema.GroupKind, name string) error {
	return Unmerged(cut(message, maxMessage)+"; send a merge patch, a JSON patch or an apply configuration", kind, name)
}

// Unmerged returns an error with status 422 for a patch that cannot be merged into the object
// called name.
func Unmerged(why string, kind schema.GroupKind, name string) error {
	return apierrors.NewInvalid(kind, name, field.ErrorList{field.Forbidden(field.NewPath("patch"),
		"cannot be merged into the object: "+why)})
}

// Mismatch reports whether message is the library's error message for a patch that it cannot merge
// into an object.
func Mismatch(message string) bool {
	for _, words := range mismatches {
		if strings.HasPrefix(message, words) {
			return true
		}
	}
	return false
}
