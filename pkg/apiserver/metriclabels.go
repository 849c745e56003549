// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
)

// requestedLabels are the metrics of the library with labels from the path of any request, also of one that is not
// authenticated or not served: each value would be a series that is kept for ever.
var requestedLabels = []string{"apiserver_request_total", "apiserver_request_terminations_total",
	"apiserver_request_aborts_total"}

// limitMetricLabels sets which values these labels have: those of what the server serves. Others are "unexpected". The
// library has one list for a process, which is that of the first server.
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
