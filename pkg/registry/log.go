// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/queryoptions"
	"example.com/extension-apiserver/pkg/registry/subresource"
)

// Log returns the subresource log: a GET with a text response that lasts until write returns or
// the client disconnects. O is the type of the query options, such as follow and tailLines. It
// must be registered in each version of the group that serves the kind. Its fields are strings,
// bools, int32 and int64, times, pointers to these, and lists of strings. A query that cannot be
// decoded returns 400.
//
// The name must be log, because kube-apiserver ends GETs of other subresources after 60 s. See
// subresource.NewLog for the remaining behavior.
func Log[T Object, O runtime.Object](
	write func(ctx context.Context, obj T, options O, w io.Writer) error) Subresource[T] {
	return log[T, O](write)
}

type log[T Object, O runtime.Object] func(ctx context.Context, obj T, options O, w io.Writer) error

func (write log[T, O]) check(d *description[T], name string) []error {
	var problems []error
	if write == nil {
		problems = append(problems, errors.New("there is no function"))
	}
	if name != "log" {
		problems = append(problems, errors.New("it is a Log, whose name is log: kube-apiserver ends GETs of other "+
			"subresources after 60 s"))
	}
	if reflect.TypeFor[O]().Kind() != reflect.Pointer {
		return append(problems, fmt.Errorf("the options are a %s, expected a pointer to a struct", reflect.TypeFor[O]()))
	}
	options := newObject[O]()
	problems = append(problems, d.checkServed(options)...)
	if len(problems) == 0 {
		if err := queryoptions.Check(options); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

func (write log[T, O]) newStorage(d *description[T], store *genericregistry.Store, _ authorizer.Authorizer,
	_ string) rest.Storage {
	newOptions := func() runtime.Object {
		options := newObject[O]()
		d.scheme.Default(options) // the library sets no defaults for an empty query
		return options
	}
	return subresource.NewLog(store, newOptions,
		func(ctx context.Context, obj, options runtime.Object, w io.Writer) error {
			return write(ctx, obj.(T), options.(O), w) //nolint:forcetypeassert // a panic is counted
		})
}
