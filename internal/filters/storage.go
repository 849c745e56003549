// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
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
		return limitedStorage{s, &sharedEvents{}}
	}), nil
}

type limitedStorage struct {
	storage.Interface
	events *sharedEvents
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
