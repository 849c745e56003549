// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"example.com/extension-apiserver/internal/sourcecache"
)

// Live is a Source whose functions are called in each request. The kind has the verbs get and list,
// without watch, so informers and garbage collection do not work with it: use Cached for these.
// The functions receive the context of the request, from which UserFrom of
// k8s.io/apiserver/pkg/endpoints/request returns the caller.
//
// Objects are in the type of the hub. They get their defaults and a UID as those of Cached. Errors
// that are not an API status become 503.
type Live[T Object] struct {
	// Get returns an object, or nil if it does not exist. namespace is empty if the kind is
	// cluster-scoped. Default: the kind does not have the verb get.
	Get func(ctx context.Context, namespace, name string) (T, error)
	// List returns a page of objects, and a token for the next page, which is empty if there is
	// none. The server removes objects that the selectors do not select. Default: the kind does
	// not have the verb list.
	List func(ctx context.Context, options LiveListOptions) (items []T, next string, err error)
	// MaxBytes is the maximum size of the objects of a page, as protobuf or JSON, where each object
	// counts for 1 KiB more. A list with more fails with 413. Default: 32 MiB.
	MaxBytes int64
}

// LiveListOptions are the options of a list.
type LiveListOptions struct {
	// Namespace is empty for a list of all namespaces, and for a cluster-scoped kind.
	Namespace string
	// Limit is the maximum number of objects, or 0 if the client did not set it.
	Limit int64
	// Continue is the token that List returned for the previous page, or empty.
	Continue string
	// LabelSelector and FieldSelector select objects. They are never nil.
	LabelSelector labels.Selector
	FieldSelector fields.Selector
}

func (s Live[T]) check(d *description[T]) []error {
	var problems []error
	if s.Get == nil && s.List == nil {
		problems = append(problems, errors.New("set Get or List"))
	}
	if s.MaxBytes < 0 {
		problems = append(problems, fmt.Errorf("field MaxBytes is %d: must be positive", s.MaxBytes))
	}
	for name := range d.Subresources {
		problems = append(problems, fmt.Errorf("the subresource %s needs a Cached source", name))
	}
	return problems
}

//nolint:unparam // it is a Source; without a store, there are no subresources
func (s Live[T]) newStorage(d *description[T], _ generic.RESTOptionsGetter,
	_ authorizer.Authorizer) (*genericregistry.Store, rest.Storage, error) {
	if s.MaxBytes == 0 {
		s.MaxBytes = defaultMaxBytes
	}
	kind := liveKind[T]{d, names{d.ShortNames, d.Categories}}
	get, list := liveGetter[T]{kind, s}, liveLister[T]{kind, s}
	switch {
	case s.List == nil:
		return nil, struct {
			liveKind[T]
			rest.Getter
		}{kind, get}, nil
	case s.Get == nil:
		return nil, list, nil
	}
	return nil, struct {
		liveLister[T]
		rest.Getter
	}{list, get}, nil
}

// liveKind is the part of a storage that does not depend on the verbs.
type liveKind[T Object] struct {
	d *description[T]
	names
}

// New implements rest.Storage.
func (k liveKind[T]) New() runtime.Object { return newObject[T]() }

// Destroy implements rest.Storage.
func (liveKind[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (k liveKind[T]) NamespaceScoped() bool { return !k.d.ClusterScoped }

// GetSingularName implements rest.SingularNameProvider.
func (k liveKind[T]) GetSingularName() string { return singular(k.d.gvk) }

// ConvertToTable implements rest.TableConvertor.
func (k liveKind[T]) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return k.d.table().ConvertToTable(ctx, obj, options)
}

type liveGetter[T Object] struct {
	kind   liveKind[T]
	source Live[T]
}

// Get implements rest.Getter.
func (g liveGetter[T]) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	d, namespace := g.kind.d, genericapirequest.NamespaceValue(ctx)
	obj, err := g.source.Get(ctx, namespace, name)
	switch {
	case err != nil:
		return nil, liveError("get", d.resource.String(), err)
	case isNil(obj):
		return nil, apierrors.NewNotFound(d.resource, name)
	}
	object, err := d.prepareSourced(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if obj.GetName() != name || obj.GetNamespace() != namespace {
		return nil, apierrors.NewInternalError(fmt.Errorf("get %s/%s: the source returned %s/%s", namespace, name,
			obj.GetNamespace(), obj.GetName()))
	}
	return object, nil
}

type liveLister[T Object] struct {
	liveKind[T]
	source Live[T]
}

// NewList implements rest.Lister.
func (l liveLister[T]) NewList() runtime.Object { return l.d.newList() }

// List implements rest.Lister.
func (l liveLister[T]) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options != nil && options.Limit < 0 {
		return nil, invalid(l.d.resource, "", field.ErrorList{field.Invalid(field.NewPath("limit"), options.Limit,
			"must be greater than or equal to 0")})
	}
	in := LiveListOptions{Namespace: genericapirequest.NamespaceValue(ctx), LabelSelector: labels.Everything(),
		FieldSelector: fields.Everything()}
	if options != nil {
		in.Limit, in.Continue = options.Limit, options.Continue
		if options.LabelSelector != nil {
			in.LabelSelector = options.LabelSelector
		}
		if options.FieldSelector != nil {
			in.FieldSelector = options.FieldSelector
		}
	}
	found, next, err := l.source.List(ctx, in)
	if err != nil {
		return nil, liveError("list", l.d.resource.String(), err)
	}
	list := l.NewList()
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	items, size := reflect.ValueOf(pointer).Elem(), int64(0)
	items.Set(reflect.MakeSlice(items.Type(), 0, len(found)))
	for _, obj := range found {
		object, err := l.d.prepareSourced(obj)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if in.Namespace != "" && obj.GetNamespace() != in.Namespace {
			return nil, apierrors.NewInternalError(fmt.Errorf("list the namespace %s: the source returned %s/%s",
				in.Namespace, obj.GetNamespace(), obj.GetName()))
		}
		objectLabels, objectFields, err := l.d.attributes(object)
		if err != nil {
			return nil, err
		}
		if !in.LabelSelector.Matches(objectLabels) || !in.FieldSelector.Matches(objectFields) {
			continue
		}
		if size += sourcecache.SizeOf(object); size > l.source.MaxBytes {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has more than %d MiB, which is the "+
				"maximum; limit=%d is possible", l.source.MaxBytes>>20, max(1, items.Len()/2)))
		}
		items.Set(reflect.Append(items, reflect.ValueOf(object).Elem()))
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetContinue(next)
	return list, nil
}

// liveError returns the status that a source returned, or 503 for another error.
func liveError(verb, resource string, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()} // the library does not unwrap errors
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s: %v", verb, resource, err))
}
