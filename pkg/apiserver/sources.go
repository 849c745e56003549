// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"example.com/extension-apiserver/internal/objectsizes"
)

// sourceStart is how long the start of a server waits for the first complete lists of its sources.
const sourceStart = 30 * time.Second

// source is implemented by the storage of a kind whose objects another system has.
type source interface {
	RunSource(ctx context.Context)
	AwaitSource(ctx context.Context) error
	CheckSource() error
}

// addLists makes the memory limit count the lists of kinds that are read in each request.
func addLists(sizes *objectsizes.Sizes, groups []*genericapiserver.APIGroupInfo) {
	for _, group := range groups {
		for _, storage := range group.VersionedResourcesStorageMap {
			for resource, storage := range storage {
				if s, ok := storage.(interface{ ListSizes() *objectsizes.Lists }); ok {
					sizes.AddLists(schema.GroupResource{Group: group.PrioritizedVersions[0].Group, Resource: resource},
						s.ListSizes())
				}
			}
		}
	}
}

// addSources runs the sources of the kinds while the server serves.
func addSources(generic *genericapiserver.GenericAPIServer, groups []*genericapiserver.APIGroupInfo,
	runtime *Runtime) error {
	all := map[string]source{} // by resource; all versions share a source
	for _, group := range groups {
		for _, storage := range group.VersionedResourcesStorageMap {
			for resource, storage := range storage {
				if s, ok := storage.(source); ok {
					all[resource+"."+group.PrioritizedVersions[0].Group] = s
				}
			}
		}
	}
	if err := generic.AddReadyzChecks(healthz.NamedCheck("sources", func(*http.Request) error {
		return checkSources(all)
	})); err != nil {
		return fmt.Errorf("add the check of sources: %w", err)
	}
	if len(all) == 0 {
		return nil
	}
	var started atomic.Bool
	if err := generic.AddReadyzChecks(healthz.NamedCheck("sources-start", func(*http.Request) error {
		if !started.Load() {
			return errors.New("the sources have not been read yet")
		}
		return nil
	})); err != nil {
		return fmt.Errorf("add the check of the start of sources: %w", err)
	}
	return generic.AddPostStartHook("sources", func(c genericapiserver.PostStartHookContext) error {
		ctx := WithRuntime(c, runtime)
		for _, s := range all {
			go s.RunSource(ctx)
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, sourceStart)
			defer cancel()
			for _, s := range all {
				_ = s.AwaitSource(ctx) // the check sources has the reason
			}
			started.Store(true)
		}()
		return nil
	})
}

// checkSources is the check sources, which fails while a kind is not served because of its source.
// The other kinds are served then, so the readiness probe of the manifests excludes this check.
func checkSources(all map[string]source) error {
	var problems []error
	for _, resource := range slices.Sorted(maps.Keys(all)) {
		problems = append(problems, all[resource].CheckSource())
	}
	return errors.Join(problems...)
}
