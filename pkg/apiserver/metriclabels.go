// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
)

// requestedLabels are the metrics of the library with labels from the path of a request,
// including requests that are unauthenticated or for paths that are not served. Each value would
// create a series that is kept forever.
var requestedLabels = []string{"apiserver_request_total", "apiserver_request_terminations_total",
	"apiserver_request_aborts_total"}

// limitMetricLabels limits the values of these labels to what the server serves. Other values
// become "unexpected". The library has one list per process, so the first server sets it.
var limitMetricLabels = func() func(groups []*genericapiserver.APIGroupInfo, paths []string) {
	var once sync.Once
	return func(groups []*genericapiserver.APIGroupInfo, paths []string) {
		once.Do(func() {
			allowed := map[string]sets.Set[string]{}
			for _, label := range []string{"group", "version", "resource", "subresource"} {
				allowed[label] = sets.New("")
			}
			allowed["subresource"].Insert(paths...)
			for _, group := range groups {
				for _, gv := range group.PrioritizedVersions {
					allowed["group"].Insert(gv.Group)
					allowed["version"].Insert(gv.Version)
				}
				for _, resources := range group.VersionedResourcesStorageMap {
					for path := range resources {
						resource, subresource, _ := strings.Cut(path, "/")
						allowed["resource"].Insert(resource)
						allowed["subresource"].Insert(subresource)
					}
				}
			}
			lists := map[string]string{}
			for _, metric := range requestedLabels {
				for label, values := range allowed {
					lists[metric+","+label] = strings.Join(sets.List(values), ",")
				}
			}
			metrics.SetLabelAllowList(lists)
		})
	}
}()
