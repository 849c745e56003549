// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"example.com/extension-apiserver/internal/restoptions"
)

// InStorage returns options for storages in which lists wait for their turns and watches share
// their events.
func InStorage(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter { return inStorage{getter} }

type inStorage struct{ generic.RESTOptionsGetter }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g inStorage) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.RESTOptionsGetter.GetRESTOptions(of, example)
	if err != nil {
		return options, err
	}
	return restoptions.Wrap(options, func(s storage.Interface, _ string, _ func() runtime.Object) storage.Interface {
		return limitedStorage{s, of, &sharedEvents{}}
	}), nil
}

type limitedStorage struct {
	storage.Interface
	of     schema.GroupResource
	events *sharedEvents
}

type readsKey struct{}

// reads are the reads of a stream, which has no share of the memory.
type reads struct {
	memory *Memory
	req    *http.Request
	info   *genericapirequest.RequestInfo
}

// withReads returns the request of a stream. Each object that it reads needs a share of the memory
// until it has been read.
func (m *Memory) withReads(req *http.Request, info *genericapirequest.RequestInfo) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), readsKey{}, &reads{m, req, info}))
}

// take waits for the memory of an object. An error has status 429.
func (r *reads) take(ctx context.Context, of schema.GroupResource) (release func(), err error) {
	size := r.memory.sizes.Largest(of, "")
	if of == resourceOf(r.info) {
		size = r.memory.sizes.Object(of, r.info.Namespace, r.info.Name)
	}
	return r.memory.take(r.req.WithContext(ctx), objectByteCost*size)
}

// Get implements storage.Interface.
func (s limitedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if r, ok := ctx.Value(readsKey{}).(*reads); ok {
		release, err := r.take(ctx, s.of)
		if err != nil {
			return err
		}
		defer release()
	}
	return s.Interface.Get(ctx, key, opts, out)
}

// GetList implements storage.Interface.
func (s limitedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Predicate.Continue != "" || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		isLongScan(ctx, opts.Predicate) {
		if err := awaitTurn(ctx); err != nil {
			return err
		}
	}
	if err := getList(ctx, list, func() error { return s.Interface.GetList(ctx, key, opts, list) }); err != nil {
		return err
	}
	return awaitTurnFor(ctx, list)
}

// Watch implements storage.Interface.
func (s limitedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.events.watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return s.Interface.Watch(ctx, key, opts)
	})
}
