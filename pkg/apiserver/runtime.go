// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	clientrest "k8s.io/client-go/rest"
)

// Runtime provides a running server's clients, informers and readers to admission plugins and
// post-start hooks of its API. The hooks of kinds get it with RuntimeFrom. Its clients and
// readers do not authorize the caller of a request: call subresource.Authorize before you use one
// for a caller.
//
// ClientConfig and Informers are set when admission plugins are created, the other fields before
// the server serves. They must not be changed: copy the configs.
type Runtime struct {
	// ClientConfig is for clients of the cluster, with the permissions of the server:
	// API.Permissions.
	ClientConfig *clientrest.Config
	// Namespace is the server's own namespace: that of its pod, or that of the context in
	// --kubeconfig, which is "default" if the context has none.
	Namespace string
	// Informers are informers of built-in kinds that use ClientConfig. The server starts the
	// informers that admission plugins get when they are created. Until they have synced, the
	// server is not ready, and rejects writes if the API has such plugins. A post-start hook
	// calls Start itself.
	Informers informers.SharedInformerFactory
	// LoopbackConfig is for clients of this server, which have all permissions because their user
	// is in system:masters. They work when post-start hooks run. Their requests pass admission
	// and validation, and have the limits of a user at the server's own port: see SECURITY.md of
	// the kit.
	LoopbackConfig *clientrest.Config
	// Authorizer authorizes a user at kube-apiserver.
	Authorizer authorizer.Authorizer

	readers         map[schema.GroupResource]Reader
	started, synced atomic.Bool // of the informers of admission plugins
}

// Reader reads the objects of a kind. Set the namespace in the context, with WithNamespace of
// k8s.io/apiserver/pkg/endpoints/request. Objects have the type of the hub and must not be
// changed.
type Reader interface {
	rest.Getter
	rest.Lister
}

// Reader returns a reader of a kind of this server, which bypasses authentication, authorization
// and limits. It returns an error before post-start hooks run, and for a resource that the server
// does not have or cannot list.
func (r *Runtime) Reader(resource schema.GroupResource) (Reader, error) {
	if r == nil {
		return nil, fmt.Errorf("read %s: the context does not belong to a request", resource)
	}
	if r.readers == nil {
		return nil, fmt.Errorf("read %s: the server has not started", resource)
	}
	reader, ok := r.readers[resource]
	if !ok {
		return nil, fmt.Errorf("read %s: the server does not serve this resource", resource)
	}
	return reader, nil
}

// onlyReader hides the other methods of a storage.
type onlyReader struct{ Reader }

func (r *Runtime) fill(c *genericapiserver.RecommendedConfig) {
	r.ClientConfig, r.Informers, r.LoopbackConfig = c.ClientConfig, c.SharedInformerFactory, c.LoopbackClientConfig
}

func (r *Runtime) startInformers(ctx context.Context) {
	r.Informers.Start(ctx.Done())
	r.started.Store(true)
}

// checkInformers returns an error until the informers of admission plugins have synced. A plugin
// would not find objects in an informer that has not synced.
func (r *Runtime) checkInformers() error {
	if r.synced.Load() {
		return nil
	}
	if !r.started.Load() {
		return errors.New("the informers of admission plugins have not started")
	}
	now := make(chan struct{})
	close(now)
	for of, synced := range r.Informers.WaitForCacheSync(now) {
		if !synced {
			return fmt.Errorf("the informer of %s for admission plugins has not synced", of)
		}
	}
	r.synced.Store(true)
	return nil
}

// setReaders sets the readers by resource. It must be called before the server serves.
func (r *Runtime) setReaders(groups []*genericapiserver.APIGroupInfo) {
	r.readers = map[schema.GroupResource]Reader{}
	for _, group := range groups {
		for _, storage := range group.VersionedResourcesStorageMap {
			for resource, storage := range storage {
				if reader, ok := storage.(Reader); ok {
					of := schema.GroupResource{Group: group.PrioritizedVersions[0].Group, Resource: resource}
					r.readers[of] = onlyReader{reader}
				}
			}
		}
	}
}

type runtimeKey struct{}

// RuntimeFrom returns the Runtime of the server that serves a request, or nil if the context does
// not belong to a request.
func RuntimeFrom(ctx context.Context) *Runtime {
	r, _ := ctx.Value(runtimeKey{}).(*Runtime)
	return r
}

// WithRuntime returns a context from which RuntimeFrom returns r, for tests of hooks.
func WithRuntime(ctx context.Context, r *Runtime) context.Context {
	return context.WithValue(ctx, runtimeKey{}, r)
}

// withRuntime is a filter that adds the Runtime to the context of each request.
func (r *Runtime) withRuntime(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(WithRuntime(req.Context(), r)))
	})
}
