// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"

	"example.com/extension-apiserver/internal/objectsizes"
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
	// MaxBytes is the maximum size of the objects that List returns, as protobuf or JSON, where each
	// object counts for 1 KiB more. A list with more fails with 413. A list waits until the server
	// has memory for it, for as much as earlier lists needed. Default: 32 MiB.
	MaxBytes int64
	// MaxInFlight is the maximum number of calls of Get and List at a time, so that requests that wait
	// for a slow system do not hold all seats of priority and fairness. Further requests get 429.
	// Default: 20.
	MaxInFlight int
}

const defaultMaxInFlight = 20

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
	if s.MaxInFlight < 0 {
		problems = append(problems, fmt.Errorf("field MaxInFlight is %d: must be positive", s.MaxInFlight))
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
	kind := liveKind[T]{d, names{d.ShortNames, d.Categories},
		liveCalls{d.resource, make(chan struct{}, cmp.Or(s.MaxInFlight, defaultMaxInFlight)),
			sourcecache.CountFailures(d.resource)}}
	get, list := liveGetter[T]{kind, s}, liveLister[T]{kind, s, objectsizes.NewLists(s.MaxBytes)}
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
	calls liveCalls
}

// liveCalls limits the calls of a source, and counts those that fail.
type liveCalls struct {
	of     schema.GroupResource
	slots  chan struct{}
	failed func()
}

// do calls the source. It returns the status that the source returned, or 503 for another error.
func (c liveCalls) do(verb string, call func() error) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s %s: %d requests wait for the source", verb, c.of,
			cap(c.slots)), 1)
	}
	err := call()
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()} // the library does not unwrap errors
	}
	c.failed()
	klog.ErrorS(err, "Unable to read objects of a source", "resource", c.of, "verb", verb)
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s %s: %v", verb, c.of, err))
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
	var obj T
	err := g.kind.calls.do("get", func() (err error) {
		obj, err = g.source.Get(ctx, namespace, name)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case isNil(obj):
		return nil, apierrors.NewNotFound(d.resource, name)
	}
	object, err := d.validSourced(obj)
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
	sizes  *objectsizes.Lists
}

// ListSizes returns the estimates of the sizes of lists. The server reserves memory for them.
func (l liveLister[T]) ListSizes() *objectsizes.Lists { return l.sizes }

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
	var found []T
	var next string
	if err := l.calls.do("list", func() (err error) {
		found, next, err = l.source.List(ctx, in)
		return err
	}); err != nil {
		return nil, err
	}
	list := l.NewList()
	size, err := l.fill(list, found, in)
	if err == nil || apierrors.IsRequestEntityTooLargeError(err) {
		l.sizes.Record(ctx, objectsizes.List{Namespace: in.Namespace, Limit: in.Limit, Objects: int64(len(found)), Size: size,
			Whole: in.Continue == "" && next == ""})
	}
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetContinue(next)
	return list, nil
}

// fill adds the selected objects of the source to a list, and returns the size of all objects.
func (l liveLister[T]) fill(list runtime.Object, found []T, in LiveListOptions) (size int64, err error) {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return 0, err
	}
	items := reflect.ValueOf(pointer).Elem()
	items.Set(reflect.MakeSlice(items.Type(), 0, len(found)))
	seen := sets.New[types.NamespacedName]()
	for i, obj := range found {
		object, err := l.d.validSourced(obj)
		if err != nil {
			return size, apierrors.NewInternalError(err)
		}
		if in.Namespace != "" && obj.GetNamespace() != in.Namespace {
			return size, apierrors.NewInternalError(fmt.Errorf("list the namespace %s: the source returned %s/%s",
				in.Namespace, obj.GetNamespace(), obj.GetName()))
		}
		key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
		if seen.Has(key) {
			return size, apierrors.NewInternalError(fmt.Errorf("list %s: the source returned %s twice", l.d.resource, key))
		}
		seen.Insert(key)
		if size += sourcecache.SizeOf(object); size > l.source.MaxBytes {
			return size, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has more than %d MiB, which is the "+
				"maximum; limit=%d is possible", l.source.MaxBytes>>20, max(1, i/2)))
		}
		objectLabels, objectFields, err := l.d.attributes(object)
		if err != nil {
			return size, err
		}
		if in.LabelSelector.Matches(objectLabels) && in.FieldSelector.Matches(objectFields) {
			items.Set(reflect.Append(items, reflect.ValueOf(object).Elem()))
		}
	}
	return size, nil
}
